"""Experiments on runs: a plan of the number of workers, and attribution of costs.

Reading order: `plan`, `blame`.

May import: everything below it (errors, types, parameters, storage, core, cluster, runs, algorithms,
engines, minimize).

The names in `__init__.pyi` are public: other packages judge step sizes by them.
"""

from asyncqn import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

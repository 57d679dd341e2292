"""Experiments on runs: a plan of the number of workers, attribution of costs, search of parameters.

Reading order: `plan`, `blame`, then `tuning/` (`spaces`, `problem`, `measure`, `tuner`).

May import: everything below it (errors, types, parameters, storage, core, cluster, runs, algorithms,
engines, minimize).

The names in `__init__.pyi` are public: other packages use them to measure and tune algorithms.
"""

from asyncqn import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

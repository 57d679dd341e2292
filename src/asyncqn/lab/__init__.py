"""Experiments on runs: a plan of how many workers help, blame for lost time, search of parameters.

May import: everything below it (errors, types, parameters, storage, core, cluster, runs, algorithms,
engines, minimize).

The names in `__init__.pyi` are public: with them other packages measure and tune algorithms.
"""

from asyncqn import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

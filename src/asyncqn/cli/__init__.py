"""The program `asyncqn`: its commands, job files and everything that is shown to a person.

May import: everything below it (errors, types, registry, published, parameters, kernels, storage, core,
cluster, runs, view, algorithms, models, engines, minimize, sample, resume, checks, lab).

The names in `__init__.pyi` are public: with them other packages write commands of their own, which they
register as entry points of the group "asyncqn.commands".
"""

from asyncqn import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

"""The program `asyncqn`: its commands, job files and all output for people.

Reading order: `main` (start and failure), `program` (commands and help), `options` and `output` (what
commands share), `jobfile` (TOML to objects), `running` (one run with progress and signals), then `commands/`.

May import: everything below it (errors, types, registry, published, parameters, kernels, storage, core,
cluster, runs, view, algorithms, models, engines, minimize, sample, draws, resume, checks, lab, columns).

The names in `__init__.pyi` are public: other packages use them to write commands, which they register as
entry points of the group "asyncqn.commands".
"""

from asyncqn import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)

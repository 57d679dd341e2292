"""The program `asyncqn`: its commands, job files and everything that is shown to a person.

May import: everything below it (errors, types, parameters, kernels, storage, core, cluster, runs,
algorithms, models, engines, minimize, resume, checks, lab).
"""

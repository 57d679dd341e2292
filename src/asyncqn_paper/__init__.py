"""All that reproduces the paper: figures, theory, claims and tuned parameters.

May import: everything below it (errors, types, storage, data, core, cluster, runs, algorithms,
models, engines, minimize, lab).
"""

"""All that reproduces the paper: figures, theory, claims and tuned parameters.

May import: everything below it (errors, types, storage, data, core, algorithms, potentials, engines,
minimize, tuning).
"""

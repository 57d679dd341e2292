"""A run as an object: its archive and checkpoints on disk, its replay, and what would have been.

May import: columns, errors, types, parameters, storage, core, cluster, algorithms, models, view.
"""

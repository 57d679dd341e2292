"""Factorized ratings as an estimator: learning, the model, its files.

May import: everything below it (errors, types, kernels, storage, data, core, cluster, runs,
algorithms, models, engines, minimize).
"""

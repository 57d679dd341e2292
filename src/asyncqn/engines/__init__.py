"""Engines decide who computes what when: the simulator, threads, processes, MPI and Ray.

May import: errors, types, parameters, kernels, storage, registry, core, cluster, runs, algorithms, models.
"""

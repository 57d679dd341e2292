"""Who computes what when: the simulator, threads, processes, MPI and Ray.

May import: errors, types, kernels, storage, registry, core, cluster, runs, algorithms, models.
"""

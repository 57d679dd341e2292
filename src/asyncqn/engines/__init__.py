"""Who computes what when: the simulator, threads, MPI and Ray.

May import: errors, types, kernels, storage, core, algorithms, potentials.
"""

"""Who computes what when: the simulator, threads, MPI and Ray."""

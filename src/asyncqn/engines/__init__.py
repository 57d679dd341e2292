"""Engines decide which worker computes what, and when: the simulator, threads, processes, MPI and Ray.

Reading order: `coordinator` is the master of every real engine, with `run_file` for its checkpoints.  Then come
`worker_loop`, and the shortest engine, `threads` with `thread_workers`.  `master_loop` and `wire` serve a master
whose workers are other processes.  `elastic` with `processes/` and `ray/`, and `mpi/`, build on them.  The
`simulator` needs none of these.

May import: errors, types, parameters, kernels, storage, registry, core, cluster, runs, algorithms, models.
"""

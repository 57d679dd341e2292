"""Engines decide which worker computes what, and when: the simulator, threads, processes, MPI and Ray.

Reading order: `coordinator` (the master of every real engine, as a state machine) with `orders`;
`worker_loop`; `threads` and `thread_workers` (the shortest engine); `master_loop` and `wire` (a master whose
workers are other processes, and the messages between them); `elastic` with `processes/` and `ray/`; `mpi/`;
`simulator`, which needs none of these.

May import: errors, types, parameters, kernels, storage, registry, core, cluster, runs, algorithms, models.
"""

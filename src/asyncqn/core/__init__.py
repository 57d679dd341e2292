"""The idea: schedules, clusters and simulation; the master's commit, execution, replay and what a run is.

May import kernels, algorithms, potentials, data, storage and types; never engines."""

"""The idea: schedules, clusters and simulation; the master's commit, execution, replay and what a run is.

May import: errors, types, kernels, storage, algorithms, runs; never engines.
"""

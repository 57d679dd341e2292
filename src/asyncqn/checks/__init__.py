"""Checks of a user's problem and algorithm, before a run and in tests.

May import: everything below it (errors, types, parameters, core, cluster, runs, algorithms, engines,
minimize).
"""

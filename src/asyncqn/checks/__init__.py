"""What a user's problem or algorithm is compared with, before a run and in tests.

May import: everything below it (errors, types, parameters, core, cluster, runs, algorithms, engines,
minimize).
"""

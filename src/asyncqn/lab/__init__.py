"""Experiments on runs: a plan of how many workers help, blame for lost time, search of parameters.

May import: everything below it (errors, types, parameters, storage, core, cluster, runs, algorithms,
engines, minimize).
"""

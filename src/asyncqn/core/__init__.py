"""The idea: the numbers of a run are a function of algorithm, problem, start, seed and schedule.

May import: errors, parameters, kernels.
"""

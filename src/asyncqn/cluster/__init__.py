"""Timing: the laws of a cluster's times, a cluster fitted to a run, and the schedule a cluster produces.

May import: errors, types, parameters, kernels, storage, published, and of core what knows no numerics
(schedule, stages, streams).
"""

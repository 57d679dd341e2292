"""Compiled free functions: arrays in, arrays out; the only room that knows numba.

May import: nothing of asyncqn.
"""

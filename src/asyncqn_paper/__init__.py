"""Reproduce the figures, claims and theory of the paper, with the public names of asyncqn alone.

Run `asyncqn reproduce NAME...`, or `python -m asyncqn_paper NAME...`.
"""

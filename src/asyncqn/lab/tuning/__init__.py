"""Search spaces and studies of parameters, for any algorithm; this room knows nothing of the paper.

May import: what the package `lab` may.
"""

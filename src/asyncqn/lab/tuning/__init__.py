"""Search spaces and studies of parameters, for any algorithm; this package does not know the paper.

May import: what the package `lab` may.
"""

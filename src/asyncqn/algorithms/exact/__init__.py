"""Exact L-BFGS: gradients of all rows, or of samples that grow to all rows, and nothing stale.

Reading order: `exact_lbfgs` (the method), `samples` (which rows a version uses), `inverse` and
`scatter` (H by the kind of its H0), and `choice` (the parameters for a problem).
"""

"""Exact L-BFGS: gradients of all rows, or of samples that grow to all rows, and nothing stale.

Reading order: `exact_lbfgs` (the method), `samples` (which rows a version uses), `inverse` (H0 and H together),
`diagonal`, `scatter` and `metric` (the kinds of H0), and `choice` (the parameters for a problem).
"""

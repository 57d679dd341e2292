"""The algorithms of the paper: as-L-BFGS, and mb-L-BFGS and a-SGD, with which the paper compares it.

Reading order: `async_sgd` (the plainest asynchronous method), `as_lbfgs`, `mb_lbfgs`.
"""

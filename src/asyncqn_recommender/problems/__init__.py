"""Factorizations of ratings and of clicks as problems that asyncqn minimises.

`matrix_factorization` has users and items in theta, as in the paper; `profiled_factorization` and
`implicit_factorization` eliminate the users (`eliminated_users`), which is what the recommender fits.
`stored` has what all of them share.
"""

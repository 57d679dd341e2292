"""Factorized ratings as an estimator: learning, the model, its files."""

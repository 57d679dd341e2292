"""Factorizations of ratings and of clicks as problems that asyncqn minimises."""

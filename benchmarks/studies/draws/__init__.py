"""Draws under staleness: effective sample sizes, and the bias of variances, on a Gaussian."""

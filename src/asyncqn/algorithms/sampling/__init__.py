"""Sampling from exp(-U): chains of Hamiltonian trajectories, one or more per worker, under a shared metric."""

"""Sampling from exp(-U): Hamiltonian chains on asynchronous workers under a shared metric."""

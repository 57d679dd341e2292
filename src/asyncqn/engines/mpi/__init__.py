"""The engine on MPI: a master rank, worker ranks, and how messages lie on the wire."""

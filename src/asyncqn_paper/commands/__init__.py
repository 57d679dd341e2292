"""`python -m asyncqn_paper COMMAND`: reproduce the figures of the paper, and tune their algorithms."""

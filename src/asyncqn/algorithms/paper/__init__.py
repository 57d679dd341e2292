"""The algorithms of the paper: as-L-BFGS, and mb-L-BFGS and a-SGD, which it compares with."""

"""Matrix factorization of ratings, whole and with one side eliminated."""

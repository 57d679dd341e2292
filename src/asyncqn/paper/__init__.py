"""All that reproduces the paper: figures, theory, claims and tuned parameters."""

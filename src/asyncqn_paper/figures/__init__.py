"""One experiment of the paper per file."""

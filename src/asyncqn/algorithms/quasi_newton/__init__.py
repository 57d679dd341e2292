"""Methods with curvature pairs, one per file."""

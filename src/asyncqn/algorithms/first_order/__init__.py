"""Methods without curvature, one per file."""

"""`sample` against the reference draws of posteriordb, beside NUTS; see README.md."""

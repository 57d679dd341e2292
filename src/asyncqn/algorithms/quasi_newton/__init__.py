"""Our own quasi-Newton methods, each a plan, an initial inverse, a pair memory and the safeguard.

`composition` shows how the parts make a method; the public classes name the parts, one class per file.
"""

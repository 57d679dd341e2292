"""Recommendations from ratings or clicks, by factorizations that asyncqn minimises.

The package is written with the public names of asyncqn alone, as any user's would be.
"""

from asyncqn import lazy_names

# The names stand in __init__.pyi; each is imported at its first use.
__getattr__, __dir__, __all__ = lazy_names(__name__)

"""Recommendations from ratings or clicks, by factorizations that asyncqn minimises.

The package uses only the public names of asyncqn, as any user's package would.  Reading order: `data`
(ratings), `problems` (the objectives), `learning` (a fit), `model` and `ranking` (predictions and lists),
`estimator` (the public class), `updating` (new ratings).
"""

from asyncqn import lazy_names

# The names are listed in __init__.pyi; each is imported at its first use.
__getattr__, __dir__, __all__ = lazy_names(__name__)

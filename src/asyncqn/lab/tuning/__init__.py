"""Search spaces and studies of parameters, for any algorithm; this package does not know the paper.

Reading order: `measure` (the time to a goal, which is the score), `spaces` (what is searched), `problem` (the
two together), `tuner` (the search), `processes` (its pool).

May import: what the package `lab` may.
"""

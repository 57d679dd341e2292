"""Reproduce the figures, claims and theory of the paper, with the public names of asyncqn alone.

Run `asyncqn reproduce NAME...`, or `python -m asyncqn_paper NAME...`.

Reading order: `settings` and `problems` (the paper's numbers and our readings of its problem), `cells`
(computing and storing), `rules` (claims and verdicts), `figures` (one file per experiment), `page`.
"""

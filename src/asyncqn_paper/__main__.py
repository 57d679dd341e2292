"""`python -m asyncqn_paper [NAME...]` reproduces the paper."""

import sys

from asyncqn.cli import run_commands

# `reproduce` is the default command, so that `python -m asyncqn_paper fig2` needs no further word.
given = sys.argv[1:]
run_commands(
    "asyncqn_paper.commands",
    "python -m asyncqn_paper",
    given if given and given[0] in ("reproduce", "--help") else ["reproduce", *given],
)

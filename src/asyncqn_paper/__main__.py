"""`python -m asyncqn_paper COMMAND`: the commands of this package."""

from asyncqn.cli import run_commands

run_commands("asyncqn_paper.commands", "python -m asyncqn_paper")

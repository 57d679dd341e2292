"""`python -m asyncqn` is the `asyncqn` program."""

from asyncqn.cli import main

main()

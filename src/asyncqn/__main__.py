"""`python -m asyncqn` is the `asyncqn` program."""

from asyncqn.cli.main import main

main()

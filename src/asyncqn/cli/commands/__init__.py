"""One file per command of the `asyncqn` program; each has `register(app)`."""

"""One file per command of the `asyncqn` program; the command is the function of the file's name."""

"""The program `asyncqn`: its commands, job files and everything that is shown to a person."""

"""The engine on MPI: a master rank, worker ranks, and the messages between them.

Reading order: `engine` (what every rank does), `worker` (with the kinds of messages), `master`,
`endings`.
"""

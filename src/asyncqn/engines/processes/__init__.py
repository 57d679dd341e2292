"""The engine on processes of this machine, with the standard library alone.

Reading order: `engine`, `master` and `worker` (the two sides), `channel` (messages between them),
`fork_server` (how workers start), `packing` (the problem in shared memory).
"""

"""The engine on Ray: a master in the driver, workers as actors.

Reading order: `engine` (the connection to Ray), `master`, `worker` (the actor).
"""

"""Search spaces and studies of parameters, for any algorithm; this room knows nothing of the paper.

May import: everything below it (errors, types, storage, core, algorithms, engines, minimize).
"""

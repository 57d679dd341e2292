"""Published methods to compare with, asynchronous and serial, one per file.

Reading order: `sgd` (the serial reference), `delay_adaptive_sgd` and `ringmaster` (two remedies for
staleness), `rennala` (rounds without stale gradients), `async_saga` (a table of gradients).
"""

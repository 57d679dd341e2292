"""Published methods to compare with: `sgd_family` (four rules of a master), `async_saga` (a table of gradients)."""

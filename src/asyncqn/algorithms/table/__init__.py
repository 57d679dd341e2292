"""The method that never waits: `table_lbfgs` is read first."""

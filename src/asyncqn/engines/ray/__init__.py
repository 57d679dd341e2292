"""The engine on Ray: a master in the driver, workers as actors."""

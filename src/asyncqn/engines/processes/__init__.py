"""Workers as processes of this machine, with the standard library alone."""

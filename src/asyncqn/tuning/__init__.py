"""Search spaces and studies of parameters, for any algorithm."""

"""Opens the logs of a data directory and finds out what survived."""

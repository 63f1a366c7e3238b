"""Subscribe: one stream that reads for a group."""

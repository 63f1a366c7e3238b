"""Cases of consumer groups."""

"""Cases of one node under load."""

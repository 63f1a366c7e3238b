"""Lines in the log of a node, and their limits."""

"""The ports of a node, and the real ones."""

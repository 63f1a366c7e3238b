"""The consumer's core."""

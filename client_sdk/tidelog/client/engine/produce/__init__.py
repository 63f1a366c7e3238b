"""The producer's core."""

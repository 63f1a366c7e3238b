"""The group member's core."""

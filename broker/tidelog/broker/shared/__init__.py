"""Errors, limits, time and meters that every room of the broker uses."""

"""Refusals that several rooms share, worded once."""

"""Checks a log against its model."""

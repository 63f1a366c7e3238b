"""Builds a node from its parts and runs it."""

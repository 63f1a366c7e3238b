"""Produce: checks, admission, and the path to the leader."""

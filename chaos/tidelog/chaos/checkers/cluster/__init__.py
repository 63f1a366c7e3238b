"""Checks the metadata of a whole cluster."""

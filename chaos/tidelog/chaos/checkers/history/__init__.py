"""Checks histories of sends and reads."""

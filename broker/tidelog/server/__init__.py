"""Puts a node together: configuration, storage, listeners, lifecycle."""

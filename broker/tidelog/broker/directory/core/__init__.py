"""Decides what a data directory writes, flushes, cuts and acknowledges. Pure."""

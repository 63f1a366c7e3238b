"""Decides who is in sync. Pure."""

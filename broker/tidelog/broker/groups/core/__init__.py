"""Decides for consumer groups: membership, assignment, offsets. Pure."""

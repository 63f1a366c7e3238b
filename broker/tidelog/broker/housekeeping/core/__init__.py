"""Decides what is deleted, compacted, sealed and scrubbed, and when. Pure."""

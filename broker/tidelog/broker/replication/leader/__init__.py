"""Decides for the leader's end of replication. Pure."""

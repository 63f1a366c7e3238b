"""Decides for the follower's end of replication. Pure."""

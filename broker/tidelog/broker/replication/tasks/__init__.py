"""Runs replication: streams, lanes, the keeper of the in-sync sets, conversions."""

"""Fetch: the call and its stream."""

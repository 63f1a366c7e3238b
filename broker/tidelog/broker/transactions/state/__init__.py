"""Holds what transactions are: states, records, replay, messages, limits and invariants. Pure."""

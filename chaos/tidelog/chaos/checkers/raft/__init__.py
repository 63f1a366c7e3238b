"""Checks Raft's invariants over all nodes."""

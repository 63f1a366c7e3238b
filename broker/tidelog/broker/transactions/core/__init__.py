"""Decides about transactions: takeover, partitions, ends, markers, upkeep. Pure."""

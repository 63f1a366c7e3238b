"""Decisions about partitions: leaders, in-sync sets, moves, damage."""

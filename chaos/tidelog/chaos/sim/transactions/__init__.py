"""Transactions under faults: plans carried out by cores over a small network, or by whole nodes."""

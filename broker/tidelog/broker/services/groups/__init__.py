"""Group calls: to the coordinator here, or to its broker."""

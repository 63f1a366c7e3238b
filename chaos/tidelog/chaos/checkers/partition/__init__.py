"""Checks the replicas of a partition against each other."""

"""Cluster metadata: what it consists of, how it changes, who may change it."""

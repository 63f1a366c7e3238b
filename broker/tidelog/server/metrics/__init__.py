"""Metrics, health and what else a node says of itself."""

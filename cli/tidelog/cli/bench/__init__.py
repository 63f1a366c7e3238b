"""Measures a cluster from the command line."""

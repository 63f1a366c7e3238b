"""Watches a running node and writes down what changes."""

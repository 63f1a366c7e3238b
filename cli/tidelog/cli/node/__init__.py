"""Runs a node, and looks at a machine."""

"""Produce and consume."""

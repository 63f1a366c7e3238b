"""Reads batches and finds offsets, verified."""

"""Starts, stops and kills real processes."""

"""Copies of partitions: leaders serve them, followers pull them, over streams between brokers."""

"""Describes topics, partitions and what ails them."""

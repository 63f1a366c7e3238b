"""Reopens, repairs and reports replicas after damage."""

"""Ends of transactions in the partitions that this broker leads."""

"""Decisions about settings and quotas."""

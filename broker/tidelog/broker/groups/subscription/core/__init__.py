"""Decides for one Subscribe stream. Pure."""

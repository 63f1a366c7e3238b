"""Decisions about topics: creation, growth, deletion."""

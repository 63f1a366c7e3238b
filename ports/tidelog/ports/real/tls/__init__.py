"""Certificates from files."""

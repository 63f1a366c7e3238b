"""Checks what users pass: kinds, options, records."""

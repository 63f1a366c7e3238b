"""Converts calls to the contract's messages and back."""

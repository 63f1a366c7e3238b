"""Converts the quorum's messages to the contract's and back."""

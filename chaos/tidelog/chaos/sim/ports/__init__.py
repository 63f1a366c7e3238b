"""The simulated ports."""

"""Decisions about brokers: registration, sessions, clocks, producer ids."""

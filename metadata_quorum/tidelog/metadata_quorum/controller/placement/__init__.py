"""Chooses the brokers that get new replicas."""

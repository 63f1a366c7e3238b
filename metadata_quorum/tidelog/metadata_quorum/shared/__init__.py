"""Converters and rules that several rooms of the quorum use."""

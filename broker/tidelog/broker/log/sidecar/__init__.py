"""The file beside a sealed segment: its index, digests and producer state."""

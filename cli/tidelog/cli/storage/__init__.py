"""Commands about data directories."""

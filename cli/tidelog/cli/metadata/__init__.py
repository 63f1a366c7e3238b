"""Commands about exported metadata."""

"""Commands about settings."""

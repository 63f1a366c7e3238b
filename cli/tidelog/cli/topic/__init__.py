"""Commands about topics."""

"""Commands about brokers."""

"""Tables and retries on top of consumer and producer."""

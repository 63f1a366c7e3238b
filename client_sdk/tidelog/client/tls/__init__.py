"""TLS settings of a client."""

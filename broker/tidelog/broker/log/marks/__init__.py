"""The small durable marks of a data directory, and the space kept for them."""

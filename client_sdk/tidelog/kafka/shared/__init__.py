"""Tables that translate kafka-python's options, names and values."""

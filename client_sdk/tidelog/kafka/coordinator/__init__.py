"""kafka-python's place for assignors."""

"""kafka-python's assignors by name: the coordinator does their work here."""

"""kafka-python has a package here."""

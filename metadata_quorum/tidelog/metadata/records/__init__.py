"""The records of which the metadata log consists."""

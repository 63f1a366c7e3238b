"""The identity of data directories, and how they are formatted."""

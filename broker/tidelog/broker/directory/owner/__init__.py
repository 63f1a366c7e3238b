"""Does what the core decided, on the disk."""

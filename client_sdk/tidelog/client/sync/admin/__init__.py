"""The admin client for threads."""

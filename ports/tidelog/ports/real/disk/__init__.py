"""Files on a real disk."""

"""What each record does to the image."""

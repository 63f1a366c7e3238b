"""What several services share."""

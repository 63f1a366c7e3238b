"""What both consumers share."""

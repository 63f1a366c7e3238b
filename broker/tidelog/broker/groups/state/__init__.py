"""What is known of one group, and the records that keep it. Pure."""

"""What is known of one log: its segments, ends and epochs."""

"""What stands around the pure coordinators: where they are, their logs, their tasks."""

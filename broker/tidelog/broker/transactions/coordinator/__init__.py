"""What stands around the pure coordinators of transactions: their logs, tasks, ids and markers."""

"""Who may change a data directory's partitions: a pure core, and the one task that runs it."""

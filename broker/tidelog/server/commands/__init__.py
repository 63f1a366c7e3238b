"""What the command line starts: nodes, clusters, recovery, restore."""

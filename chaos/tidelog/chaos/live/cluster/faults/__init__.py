"""What is done to nodes, disks and paths."""

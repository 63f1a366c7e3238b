"""A simulated cluster of whole nodes, and what is done to it: the parts of the cluster suite."""

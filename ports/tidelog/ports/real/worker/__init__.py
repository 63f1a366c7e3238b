"""A process beside the node for long computations."""

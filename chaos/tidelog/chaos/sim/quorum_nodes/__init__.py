"""The quorum as whole nodes, and the suite of the quorum."""

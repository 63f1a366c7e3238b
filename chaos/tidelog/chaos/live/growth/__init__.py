"""Cases of a cluster that grows and shrinks."""

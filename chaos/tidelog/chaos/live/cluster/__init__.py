"""Cases of three nodes under load and faults."""

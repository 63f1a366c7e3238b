"""ReplicaService: what followers call."""

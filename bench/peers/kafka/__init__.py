"""Apache Kafka as a peer: its node, and its own performance tools."""

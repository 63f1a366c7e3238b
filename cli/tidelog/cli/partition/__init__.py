"""Commands about partitions."""

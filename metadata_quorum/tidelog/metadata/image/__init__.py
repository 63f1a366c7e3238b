"""The metadata at one version, immutable: brokers, topics, partitions, settings."""

"""What a client knows of the cluster: metadata, topics, tries."""

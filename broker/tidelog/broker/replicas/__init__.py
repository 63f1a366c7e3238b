"""The replicas of this broker: which there are, where they live, how they open and fail."""

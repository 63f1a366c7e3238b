"""The active controller at work: pure decisions joined to the quorum, and what brokers ask."""

"""The quorum at work: the pure core joined to storage, network and the metadata state machine."""

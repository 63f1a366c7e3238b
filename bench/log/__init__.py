"""The partition log by itself: what storing and reading cost, however much is stored."""

"""The way of a batch to its copies, by itself: three processes, no clients, no quorum."""

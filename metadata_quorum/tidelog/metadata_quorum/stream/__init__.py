"""How metadata reaches nodes that are not members: the stream, its server, the observer."""

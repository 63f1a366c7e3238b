"""One node and its clients, the smallest world."""

"""The contract's messages as values and back: once, for brokers, controllers and the client."""

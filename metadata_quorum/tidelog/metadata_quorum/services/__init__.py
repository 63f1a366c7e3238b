"""The services that a controller offers to brokers, and the table of all its methods."""

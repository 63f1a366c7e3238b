"""The services of a broker, a folder each: handler and wire."""

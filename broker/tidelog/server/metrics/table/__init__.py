"""The table of metrics: name, kind, labels, help, and where each value comes from."""

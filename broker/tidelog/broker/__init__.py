"""The data plane: partition logs, the handlers of each call, and their protobuf surface."""

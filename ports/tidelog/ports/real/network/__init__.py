"""The network port as gRPC on real sockets."""

"""What each call does: Structs in, Structs out, the RequestContext first. No gRPC, no protobuf."""

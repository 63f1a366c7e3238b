"""The contract's surface: protobuf to Structs and back, and which method is served by what."""

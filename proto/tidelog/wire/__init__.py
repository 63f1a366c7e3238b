"""What both ends of the wire agree on and protobuf cannot say: errors, ids, the record batch."""

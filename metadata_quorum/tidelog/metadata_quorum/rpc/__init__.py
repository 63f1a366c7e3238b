"""Conversions between the contract and this room's Structs; nothing else here knows protobuf."""

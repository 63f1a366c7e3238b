"""The client's decisions, without any I/O: two drivers stand on them, neither is known here.

Owns accumulation, partitioning, metadata, retry and fetch positions. It must never import asyncio,
gRPC, a clock, randomness, threads or protobuf: time comes in as an argument, work goes out as
effects. Stops 1 to 4 and 10 of a record's walk.
"""

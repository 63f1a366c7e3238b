"""The synchronous driver: threads and grpc's synchronous API around the engine.

Owns every thread, lock, clock and channel of the sync clients. It must never decide what the
engine decides, nor import grpc before the first call. Stop 4 of a record's walk.
"""

"""The adapters of a real node: grpc.aio, files and threads, the machine's clocks and randomness.

Import what is needed from its own module: `network` imports gRPC, the others do not.
"""

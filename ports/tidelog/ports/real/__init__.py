"""The adapters of a real node: grpc.aio, files and threads, the machine's clocks and randomness.

Import what is needed from its own module: `network` imports gRPC, the others do not.
"""

import os

# gRPC reads it when it is imported, which `network` does after this. How connections end is told
# typed to those whom it concerns; whoever wants gRPC's lines on standard error sets the variable.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

"""`python -m tidelog.chaos.live.quorum.reader ADDRESS ...`: what each node shows, by plain gRPC.

Owns the independent reading back: no SDK, no port, no memory of what was written. Prints one line
of JSON a node: its address and the quotas by client id, from the node's own image.
"""

import json
import sys
from typing import Final

import grpc

from tidelog.v1 import config_admin_pb2, config_admin_pb2_grpc

CALL_SECONDS_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


def read_quotas(address: str) -> dict[str, int]:
    """Client id → requests per second, of all of them."""
    options = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = config_admin_pb2_grpc.ConfigServiceStub(channel)
        request = config_admin_pb2.DescribeQuotasRequest()
        answer = stub.DescribeQuotas(request, timeout=CALL_SECONDS_MAX)
    return {each.client_id: each.requests_per_second for each in answer.quotas}


def main(addresses: list[str]) -> int:
    """One line a node."""
    for address in addresses:
        print(json.dumps({"address": address, "quotas": read_quotas(address)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tidelog.chaos.live.cluster_reader TOPIC ADDRESS ...`: every record, by plain gRPC.

Owns the independent reading back of a replicated topic: no SDK, a fresh process. Prints one JSON
array a record: partition, offset, value. Each partition is read from its leader, at the address
that brokers tell clients. `--past-errors` goes on with the next partition: for touching what is
stored, never for a verdict.
"""

import json
import sys
import time
from typing import Final

import grpc

from tidelog.chaos.live.cluster_seats import Seen, look
from tidelog.chaos.live.reader import read_partition
from tidelog.v1 import records_pb2_grpc
from tidelog.wire.errors import TidelogError

LEAD_SECONDS_MAX: Final = 60.0
PAST_ERRORS: Final = "--past-errors"
PAUSE_SECONDS: Final = 0.2


def wait_led(addresses: list[str], topic: str) -> Seen:
    """What a broker knows as soon as every partition has a leader that is not fenced."""
    deadline = time.monotonic() + LEAD_SECONDS_MAX
    problem = "nobody was asked"
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                seen = look(address, topic)
            except TidelogError as error:
                problem = error.happened
                continue
            lost = [n for n, seat in enumerate(seen.seats) if seat.leader not in seen.addresses]
            if not lost:
                return seen
            problem = f"partitions {lost} have no leader"
        time.sleep(PAUSE_SECONDS)
    raise SystemExit(f"not within {LEAD_SECONDS_MAX:.0f} s: {problem}")


def main(arguments: list[str]) -> int:
    """Print every record of every partition."""
    is_going_on = PAST_ERRORS in arguments
    topic, *addresses = [each for each in arguments if each != PAST_ERRORS]
    seen = wait_led(addresses, topic)
    for partition, seat in enumerate(seen.seats):
        with grpc.insecure_channel(seen.addresses[seat.leader]) as channel:
            stub = records_pb2_grpc.RecordsServiceStub(channel)
            try:
                for offset, value in read_partition(stub, topic, partition):
                    print(json.dumps([partition, offset, value.rstrip()]))
            except grpc.RpcError:
                if not is_going_on:
                    raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

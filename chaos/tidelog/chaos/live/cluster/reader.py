"""`python -m tidelog.chaos.live.cluster.reader TOPIC ADDRESS ...`: every record, by plain gRPC.

Owns the independent reading back of a replicated topic: no SDK, a fresh process. Prints one JSON
array a record: partition, offset, value. Each partition is read from its leader, at the address
that brokers tell clients, and from the next one where that changes meanwhile; then the ends of all
are looked at once more, since a leader that has just begun may know of less than is committed.
`--past-errors` goes on with the next partition: for touching what is stored, never for a verdict.
"""

import json
import sys
import time
from typing import Final

import grpc

from tidelog.chaos.live.cluster.seats import Seen, look
from tidelog.chaos.live.single.reader import read_partition
from tidelog.v1 import records_pb2_grpc
from tidelog.wire.errors import TidelogError

LEAD_SECONDS_MAX: Final = 60.0
PAST_ERRORS: Final = "--past-errors"
PAUSE_SECONDS: Final = 0.2
ATTEMPTS: Final = 10
"""Of one partition; between them its leader is asked for anew."""


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
    ends = [0] * len(wait_led(addresses, topic).seats)
    for _ in range(1 if is_going_on else 2):
        for partition, end in enumerate(ends):
            try:
                ends[partition] = print_partition(addresses, topic, partition, end)
            except grpc.RpcError:
                if not is_going_on:
                    raise
    return 0


def print_partition(addresses: list[str], topic: str, partition: int, offset: int) -> int:
    """From the offset on; where the next record would be."""
    for attempt in range(1, ATTEMPTS + 1):
        seen = wait_led(addresses, topic)
        with grpc.insecure_channel(seen.addresses[seen.seats[partition].leader]) as channel:
            stub = records_pb2_grpc.RecordsServiceStub(channel)
            try:
                for found, value in read_partition(stub, topic, partition, offset):
                    print(json.dumps([partition, found, value.rstrip()]))
                    offset = found + 1
            except grpc.RpcError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                break
    return offset


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

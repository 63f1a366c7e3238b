"""An independent reader: plain gRPC calls of the easy path, none of the SDK, a fresh process.

`python -m tidelog.chaos.live.single.reader HOST:PORT TOPIC PARTITIONS` prints one JSON array a
record: partition, offset, value. What the SDK under test believes has no part in the verdict.
"""

import json
import sys
from collections.abc import Iterator
from typing import Final

import grpc

from tidelog.v1 import records_pb2, records_pb2_grpc

CALL_SECONDS_MAX: Final = 20.0
RECORDS_A_CALL: Final = 5_000


def read_partition(
    stub: records_pb2_grpc.RecordsServiceStub, topic: str, partition: int, offset: int = 0
) -> Iterator[tuple[int, str]]:
    """Every record from the offset on, up to the high watermark of the first answer."""
    end: int | None = None
    while end is None or offset < end:
        answer = stub.FetchRecords(
            records_pb2.FetchRecordsRequest(
                topic=topic,
                partition=partition,
                fetch_offset=offset,
                max_records=RECORDS_A_CALL,
            ),
            timeout=CALL_SECONDS_MAX,
        )
        if end is None:
            end = answer.high_watermark
        for record in answer.records:
            yield record.offset, record.value.decode("utf-8")
        if answer.next_offset <= offset and offset < end:
            raise SystemExit(f"{topic}-{partition} stands still at offset {offset} of {end}")
        offset = answer.next_offset


def main(arguments: list[str]) -> int:
    """Print every record of every partition."""
    address, topic, partition_count = arguments[0], arguments[1], int(arguments[2])
    with grpc.insecure_channel(address) as channel:
        stub = records_pb2_grpc.RecordsServiceStub(channel)
        for partition in range(partition_count):
            for offset, value in read_partition(stub, topic, partition):
                print(json.dumps([partition, offset, value]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

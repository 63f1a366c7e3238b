"""`python -m bench.peers.kafka.reader BOOTSTRAP TOPIC PARTITIONS`: every record of a topic.

Owns the reading back of a run against Kafka, in a fresh process. Prints one JSON array a record:
partition, offset, value; as Tidelog's plain reader does.
"""

import json
import sys
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

READ_SECONDS_MAX: Final = 240.0
CALL_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 1.0
BATCH: Final = 10_000


def end_of(consumer: Consumer, place: TopicPartition, deadline: float) -> int:
    """Its high watermark, as soon as its leader knows it."""
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=CALL_SECONDS_MAX)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def main(arguments: list[str]) -> int:
    """Print every record of every partition, up to where each ended at first."""
    bootstrap, topic, partition_count = arguments[0], arguments[1], int(arguments[2])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    places = [TopicPartition(topic, number, 0) for number in range(partition_count)]
    deadline = time.monotonic() + READ_SECONDS_MAX
    ends = {place.partition: end_of(consumer, place, deadline) for place in places}
    consumer.assign(places)
    left = {number: end for number, end in ends.items() if end > 0}
    while left and time.monotonic() < deadline:
        for message in consumer.consume(BATCH, timeout=POLL_SECONDS):
            if message.error() is not None:
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None, "a record without error has a partition"
            assert offset is not None, "a record without error has an offset"
            assert value is not None, "every record of these producers has a value"
            print(json.dumps([partition, offset, value.decode().rstrip()]))
            if offset + 1 >= left.get(partition, 0):
                left.pop(partition, None)
    consumer.close()
    if left:
        raise SystemExit(f"not read to their ends within {READ_SECONDS_MAX:.0f} s: {sorted(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

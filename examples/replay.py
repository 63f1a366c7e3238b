"""Read the past again: a log keeps what was read, and a reader goes back to an offset or a time.

`tidelog dev` in one terminal, `python examples/replay.py` in another.
"""

from itertools import islice

from tidelog.client import Consumer, Producer, TopicPartition

PARTITION = TopicPartition("history", 0)
HOUR_MS = 3_600_000
NOON_MS = 1_750_000_000_000


def main() -> None:
    """Three records an hour apart, read from the second hour on, then once more from the first."""
    with Producer(value_serializer=str.encode) as producer:
        futures = [
            producer.send(PARTITION.topic, text, partition=0, timestamp_ms=NOON_MS + hour * HOUR_MS)
            for hour, text in enumerate(["breakfast", "lunch", "dinner"])
        ]
        first = futures[0].get(timeout=10).offset
        producer.flush(timeout=10)

    with Consumer(value_deserializer=bytes.decode) as consumer:
        consumer.assign([PARTITION])
        found = consumer.offsets_for_times({PARTITION: NOON_MS + HOUR_MS})[PARTITION]
        assert found is not None, "something was written after that time"
        consumer.seek(PARTITION, found.offset)
        print("an hour after noon:", *(record.value for record in islice(consumer, 2)))
        consumer.seek(PARTITION, first)
        print("once more:", *(record.value for record in islice(consumer, 3)))


if __name__ == "__main__":
    main()

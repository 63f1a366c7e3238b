"""A group that commits by itself: who comes next goes on where the one before stopped."""

import os
from itertools import islice

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

with KafkaProducer(bootstrap_servers=servers) as producer:
    for number in range(5):
        producer.send("auto-commit", b"%d" % number)


def read(count: int) -> list[int]:
    consumer = KafkaConsumer(
        "auto-commit",
        bootstrap_servers=servers,
        group_id="auto-group",
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=200,
        consumer_timeout_ms=300_000,
    )
    found = [int(next(consumer).value) for _ in range(count)]
    consumer.close()
    return found


print(read(3))
print(read(2))
with KafkaProducer(bootstrap_servers=servers) as producer:
    producer.send("auto-commit", b"5")
print(read(1))

other = KafkaConsumer(
    "auto-commit",
    bootstrap_servers=servers,
    group_id="another-group",
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
)
print([int(message.value) for message in islice(other, 6)])
other.close()

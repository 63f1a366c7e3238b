"""Iteration ends when nothing comes, and can begin again."""

import os
import time

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=servers)
producer.send("timeout", b"first").get(timeout=300)

consumer = KafkaConsumer(
    "timeout",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=1500,
)


def read_one() -> list[bytes]:
    found: list[bytes] = []
    while not found:  # on a busy machine nothing may come within the time
        found = [message.value for message in consumer]
    return found


print(*read_one())
began = time.monotonic()
print(list(consumer))
print("waited", time.monotonic() - began >= 1.4)
producer.send("timeout", b"second").get(timeout=300)
print(read_one())
print(consumer.poll(timeout_ms=100))
try:
    next(consumer)
except StopIteration:
    print("StopIteration")
consumer.close()
print(list(consumer))

"""Iteration ends when nothing comes, and can begin again."""

import os
import time

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=servers)
producer.send("timeout", b"first").get(timeout=10)

consumer = KafkaConsumer(
    "timeout",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=1500,
)
for message in consumer:
    print(message.value)
began = time.monotonic()
print(list(consumer))
print("waited", round(time.monotonic() - began, 0) in (1.0, 2.0))
producer.send("timeout", b"second").get(timeout=10)
print([message.value for message in consumer])
print(consumer.poll(timeout_ms=100))
try:
    next(consumer)
except StopIteration:
    print("StopIteration")
consumer.close()
print(list(consumer))

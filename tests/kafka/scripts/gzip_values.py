"""Compressed batches."""

import os
from itertools import islice

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

for codec in ("gzip", "snappy", "lz4", "zstd", None):
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=codec)
    for number in range(200):
        producer.send("compressed", f"{codec} {number} ".encode() * 20)
    producer.close()

consumer = KafkaConsumer(
    "compressed",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
)
values = [message.value for message in islice(consumer, 1000)]
print(len(values), values[0][:20], values[200][:20], values[999][:20])
print([value.split()[:2] for value in values[::100]])

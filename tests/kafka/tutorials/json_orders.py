"""A producer of JSON with keys, and a group that reads it in polls of a few records."""

import json
import os

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]
producer = KafkaProducer(
    bootstrap_servers=[servers],
    key_serializer=lambda key: key.encode("utf-8"),
    value_serializer=lambda value: json.dumps(value).encode("utf-8"),
    acks="all",
    retries=3,
    linger_ms=10,
    batch_size=16384,
    compression_type="gzip",
)
for number in range(7):
    producer.send("orders", key=f"customer-{number % 2}", value={"order": number, "price": 1.5})
producer.flush(timeout=60)
producer.close(timeout=60)

consumer = KafkaConsumer(
    "orders",
    bootstrap_servers=[servers],
    group_id="order-readers",
    auto_offset_reset="earliest",
    enable_auto_commit=True,
    auto_commit_interval_ms=1000,
    max_poll_records=3,
    session_timeout_ms=30000,
    heartbeat_interval_ms=3000,
    key_deserializer=lambda key: key.decode("utf-8"),
    value_deserializer=lambda value: json.loads(value.decode("utf-8")),
)
seen = []
while len(seen) < 7:
    batches = consumer.poll(timeout_ms=1000)
    for topic_partition, records in batches.items():
        assert len(records) <= 3, topic_partition
        seen.extend(records)
for record in seen:
    print(f"{record.topic}:{record.partition}:{record.offset}: {record.key}={record.value}")
consumer.close()

"""JSON by functions, and by the serializer that comes with kafka-python."""

import json
import os
from itertools import islice

from kafka import JsonSerializer, KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(
    bootstrap_servers=servers,
    key_serializer=str.encode,
    value_serializer=lambda value: json.dumps(value).encode("utf-8"),
)
for number in range(3):
    producer.send("json", key=f"user-{number}", value={"number": number, "even": number % 2 == 0})
producer.close()

consumer = KafkaConsumer(
    "json",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
    key_deserializer=lambda key: key.decode(),
    value_deserializer=lambda value: json.loads(value.decode("utf-8")),
)
for message in islice(consumer, 3):
    print(message.key, message.value, message.serialized_value_size)
consumer.close()

with KafkaProducer(bootstrap_servers=servers, value_serializer=JsonSerializer()) as producer:
    producer.send("json", {"by": ["the", "serializer"]}).get(timeout=300)
    producer.send("json", key=b"deleted").get(timeout=300)
with KafkaConsumer(
    "json",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
    value_deserializer=JsonSerializer(),
) as consumer:
    print([message.value for message in islice(consumer, 5)])

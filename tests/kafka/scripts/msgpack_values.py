"""MessagePack by functions."""

import os
from itertools import islice

import msgspec
from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=msgspec.msgpack.encode)
producer.send("msgpack", {"key": "value"})
producer.send("msgpack", [1, 2.5, None, b"bytes"])
producer.flush()

consumer = KafkaConsumer(
    "msgpack",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
    value_deserializer=msgspec.msgpack.decode,
)
for message in islice(consumer, 2):
    print(message.offset, message.value, message.serialized_value_size)

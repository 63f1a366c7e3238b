"""What a future knows before and after."""

import os

from kafka import KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=servers)
future = producer.send(
    "future", value=b"value", key=b"key", headers=[("name", b"x")], timestamp_ms=1_700_000_000_000
)
metadata = future.get(timeout=300)
print(metadata)
print(metadata.topic, metadata.partition, metadata.offset, metadata.timestamp)
print(metadata.topic_partition, metadata.serialized_key_size, metadata.serialized_value_size)
print(future.is_done, future.succeeded(), future.failed(), future.retriable(), future.exception)
print(future.value == metadata, future.get() == metadata)
print(producer.send("future", key=b"only a key", timestamp_ms=1).get(300).serialized_value_size)
print(producer.partitions_for("future"))
producer.close(timeout=300)

"""Everything that a record carries, there and back."""

import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = os.environ["KAFKA_BOOTSTRAP"]
producer = KafkaProducer(bootstrap_servers=servers)
sent = producer.send(
    topic="fields",
    key=b"key",
    value=b"value",
    headers=[("source", b"test"), ("empty", b"")],
    partition=0,
    timestamp_ms=1714557600000,
).get(timeout=60)
print(sent.topic, sent.partition, sent.offset, sent.timestamp, sent.topic_partition)
print(sent.serialized_key_size, sent.serialized_value_size, sent.serialized_header_size)
producer.send("fields", key=b"deleted", value=None).get(60)
producer.send("fields", value=bytearray(b"bytes")).get(60)
producer.send("fields", value=memoryview(b"view")).get(60)
producer.close()

consumer = KafkaConsumer(
    bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=60000
)
consumer.assign([TopicPartition("fields", 0)])
message = next(consumer)
print(
    "%s:%d:%d: key=%s value=%s"
    % (message.topic, message.partition, message.offset, message.key, message.value)
)
print(message.headers, dict(message.headers)["source"], message.timestamp, message.timestamp_type)
print(message.serialized_key_size, message.serialized_value_size, message.checksum)
print(sorted(message._asdict())[:4])
print([(each.key, each.value) for each in (next(consumer) for _ in range(3))])
print(consumer.highwater(TopicPartition("fields", 0)))
consumer.close()

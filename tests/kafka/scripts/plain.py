"""A producer and a consumer, nothing else."""

import os

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=[servers])
for number in range(3):
    producer.send("plain", b"value %d" % number)
producer.send("plain", key=b"key", value=b"with a key", headers=[("h", b"1"), ("h", b"2")])
producer.flush()
producer.close()

consumer = KafkaConsumer("plain", bootstrap_servers=[servers], auto_offset_reset="earliest")
for message in consumer:
    print(
        f"{message.topic}:{message.partition}:{message.offset}: "
        f"key={message.key!r} value={message.value!r} headers={message.headers}"
    )
    print(
        message.timestamp_type,
        message.checksum,
        message.serialized_key_size,
        message.serialized_value_size,
        message.serialized_header_size,
    )
    if message.offset == 3:
        break
print(message._fields)
print(consumer.subscription(), consumer.assignment())
consumer.close()

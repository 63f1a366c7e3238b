"""A topic read from its beginning to its end, without a group, by the names of old examples."""

import contextlib
import os

from kafka import KafkaConsumer, KafkaProducer

servers = os.environ["KAFKA_BOOTSTRAP"]
producer = KafkaProducer(bootstrap_servers=servers, value_serializer=str.encode)
for word in "one two three".split():
    producer.send("drained", word)
producer.flush()
print(producer.bootstrap_connected(), producer.partitions_for("drained"))
producer.close()

consumer = KafkaConsumer(
    "drained",
    bootstrap_servers=servers,
    auto_offset_reset="smallest",
    enable_auto_commit=False,
    group_id=None,
    consumer_timeout_ms=10000,
    value_deserializer=lambda value: value.decode("ascii"),
)
with contextlib.closing(consumer):
    print([message.value for message in consumer])
    print(sorted(consumer.subscription()), [p.partition for p in consumer.assignment()])
    consumer.seek_to_beginning()
    print(next(consumer).value, list(message.value for message in consumer))
    consumer.seek_to_beginning(*consumer.assignment())
    messages = consumer.poll(timeout_ms=60000, max_records=1)
    print([message.value for batch in messages.values() for message in batch])

"""A consumer that commits each record when its work is done."""

import os

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition

servers = os.environ["KAFKA_BOOTSTRAP"]
producer = KafkaProducer(bootstrap_servers=servers)
for number in range(4):
    producer.send("worked", value=b"%d" % number, headers=[("number", b"%d" % number)])
producer.flush()


def consumer():
    return KafkaConsumer(
        "worked",
        bootstrap_servers=servers,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=60000,
    )


def on_commit(offsets, response):
    print(sorted(at.offset for at in offsets.values()), isinstance(response, Exception))


first = consumer()
for message in first:
    partition = TopicPartition(message.topic, message.partition)
    if message.offset == 2:
        first.commit_async({partition: OffsetAndMetadata(3, "half", -1)}, callback=on_commit)
        break
    first.commit({partition: OffsetAndMetadata(message.offset + 1, None)})
    print("done", message.offset, message.headers, first.committed(partition))
first.close()

second = consumer()
message = next(second)
print(
    message.offset, second.committed(partition, metadata=True).metadata, second.position(partition)
)
second.close()

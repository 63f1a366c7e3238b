"""A group whose consumer says itself what is done."""

import os
import time

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError

servers = os.environ["KAFKA_BOOTSTRAP"]
partition = TopicPartition("commits", 0)

with KafkaProducer(bootstrap_servers=servers) as producer:
    for number in range(6):
        producer.send("commits", b"%d" % number)


def consumer(**configs: object) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=servers,
        group_id="commit-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=300_000,
        **configs,
    )


first = consumer()
first.subscribe(["commits"])
print(first.committed(partition), first.committed(partition, metadata=True))
print([int(next(first).value) for _ in range(2)])
first.commit()
print(first.committed(partition), first.position(partition), sorted(first.assignment()))
print([int(next(first).value) for _ in range(2)])
first.commit({partition: OffsetAndMetadata(3, "noted", -1)})
print(first.committed(partition), first.committed(partition, metadata=True).metadata)
metadata = first.group_metadata()
print(metadata.group_id, metadata.generation_id > 0, metadata.member_id != "", metadata.state)
first.close()

second = consumer()
second.subscribe(["commits"])
print([int(next(second).value) for _ in range(3)])
told: list[object] = []
future = second.commit_async(callback=lambda offsets, answer: told.append(sorted(offsets)))
deadline = time.monotonic() + 300
while not (future.is_done and told) and time.monotonic() < deadline:
    second.poll(timeout_ms=100)
print(future.succeeded(), told, second.committed(partition))
second.close()

assigned = consumer()
assigned.assign([partition])
print(assigned.position(partition))
assigned.seek(partition, 1)
assigned.commit()
print(assigned.committed(partition))
assigned.close()

alone = KafkaConsumer(bootstrap_servers=servers)
for call in (alone.commit, alone.commit_async, lambda: alone.committed(partition)):
    try:
        call()
    except IllegalStateError as error:
        print(error)
print(alone.group_metadata().group_id)
alone.close()

"""A partition by hand: assign, seek, offsets, times, pause."""

import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = os.environ["KAFKA_BOOTSTRAP"]

producer = KafkaProducer(bootstrap_servers=servers)
for number in range(10):
    producer.send("seek", b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
producer.flush()

partition = TopicPartition("seek", 0)
consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
print(consumer.assignment(), consumer.subscription())
consumer.assign([partition])
print(consumer.assignment(), consumer.subscription(), partition)
print(
    consumer.beginning_offsets([partition]), consumer.end_offsets([partition], timeout_ms=300_000)
)
print(consumer.position(partition))


def read(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        for records in consumer.poll(timeout_ms=1000, max_records=count - len(found)).values():
            found += [int(record.value) for record in records]
    return found


print(read(3), consumer.position(partition))
consumer.seek(partition, 7)
print(consumer.position(partition), read(2), consumer.highwater(partition))
consumer.seek_to_beginning(partition)
print(consumer.position(partition), read(1))
consumer.seek_to_end()
print(consumer.position(partition), consumer.poll(timeout_ms=200))
for wanted in (1_700_000_000_004, 1_800_000_000_000):
    print(consumer.offsets_for_times({partition: wanted}))
consumer.seek(partition, 0)
consumer.pause(partition)
print(consumer.paused(), consumer.poll(timeout_ms=300))
consumer.resume(partition)
print(consumer.paused(), read(2))
print([record.offset for record, _ in zip(consumer, range(2), strict=False)])
print(consumer.partitions_for_topic("seek"), consumer.partitions_for_topic("no-such-topic"))
print("seek" in consumer.topics())
consumer.unsubscribe()
print(consumer.assignment(), consumer.subscription())
consumer.close()

"""How far a group is behind, as a monitor asks that reads nothing itself."""

import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = os.environ["KAFKA_BOOTSTRAP"]
producer = KafkaProducer(bootstrap_servers=servers)
for number in range(10):
    future = producer.send("watched", str(number).encode(), partition=0)
print(future.get(timeout=60).offset, future.succeeded(), future.is_done)
producer.close()

reader = KafkaConsumer(
    bootstrap_servers=servers, group_id="watched-readers", enable_auto_commit=False
)
partition = TopicPartition("watched", 0)
reader.assign([partition])
reader.seek(partition, 0)
read = 0
while read < 4:
    for records in reader.poll(timeout_ms=1000, max_records=4 - read).values():
        read += len(records)
reader.commit()
reader.close(autocommit=False)

monitor = KafkaConsumer(
    bootstrap_servers=servers, group_id="watched-readers", enable_auto_commit=False
)
for number in monitor.partitions_for_topic("watched"):
    partition = TopicPartition("watched", number)
    monitor.assign([partition])
    committed = monitor.committed(partition)
    monitor.seek_to_end(partition)
    last = monitor.position(partition)
    print(f"partition: {number} committed: {committed} last: {last} lag: {last - committed}")
ends = monitor.end_offsets(monitor.assignment())
print({f"{name.topic}-{name.partition}": end for name, end in ends.items()})
print(monitor.beginning_offsets([partition])[partition])
monitor.close(autocommit=False)

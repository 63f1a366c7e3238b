"""Everything since a moment, up to where the partition ended when the script began."""

import datetime
import os

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

servers = os.environ["KAFKA_BOOTSTRAP"]
begin = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
with KafkaProducer(bootstrap_servers=servers) as producer:
    for hour in range(6):
        at = begin + datetime.timedelta(hours=hour)
        producer.send("history", b"hour %d" % hour, timestamp_ms=int(at.timestamp() * 1000))

consumer = KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=60000)
partitions = [TopicPartition("history", p) for p in consumer.partitions_for_topic("history")]
consumer.assign(partitions)
wanted = int((begin + datetime.timedelta(hours=2, minutes=30)).timestamp() * 1000)
found = consumer.offsets_for_times({partition: wanted for partition in partitions})
ends = consumer.end_offsets(partitions)
for partition, place in found.items():
    print(partition.partition, place.offset, place.timestamp)
    consumer.seek(partition, place.offset)
for message in consumer:
    at = datetime.datetime.fromtimestamp(message.timestamp / 1000, datetime.timezone.utc)
    print(message.offset, at.isoformat(), message.value.decode())
    if message.offset + 1 >= ends[TopicPartition(message.topic, message.partition)]:
        break
later = {partition: wanted + 10**10 for partition in partitions}
print(consumer.offsets_for_times(later)[partitions[0]])
consumer.close()

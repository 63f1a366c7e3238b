"""A listener that begins anew with whatever its consumer is assigned."""

import os

import kafka
from kafka.errors import CommitFailedError

servers = os.environ["KAFKA_BOOTSTRAP"]


class Listener(kafka.ConsumerRebalanceListener):
    def __init__(self, consumer, reset):
        self._consumer = consumer
        self._reset = reset

    def on_partitions_revoked(self, revoked):
        print("Partitions %s revoked" % sorted(p.partition for p in revoked))

    def on_partitions_assigned(self, assigned):
        print("Partitions %s assigned" % sorted(p.partition for p in assigned))
        if self._reset:
            self._consumer.seek_to_beginning()


producer = kafka.KafkaProducer(bootstrap_servers=servers)
for number in range(3):
    producer.send("balanced", b"%d" % number)
producer.flush()
producer.close()

for reset in (False, True):
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id="balanced-readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=60000,
    )
    consumer.subscribe(topics=["balanced"], listener=Listener(consumer, reset))
    read = []
    for message in consumer:
        read.append(int(message.value))
        if len(read) == 3:
            break
    print(read)
    try:
        consumer.commit()
    except CommitFailedError:
        print("taken away")
    print(consumer.committed(kafka.TopicPartition("balanced", 0)))
    consumer.close()

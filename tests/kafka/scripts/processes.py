"""One consumer per process."""

import multiprocessing
import os
from itertools import islice
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

TOPIC = "processes"
servers = os.environ["KAFKA_BOOTSTRAP"]


def produce() -> None:
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(300):
            producer.send(TOPIC, b"%d" % number, partition=number % 3)


def consume(partition: int, results: Any) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", consumer_timeout_ms=300_000
    )
    consumer.assign([TopicPartition(TOPIC, partition)])
    results.put((partition, sum(int(message.value) for message in islice(consumer, 100))))
    consumer.close()


if __name__ == "__main__":
    first = multiprocessing.Process(target=produce)
    first.start()
    first.join()
    results: Any = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=consume, args=(each, results)) for each in range(3)]
    for worker in workers:
        worker.start()
    print(sorted(results.get(timeout=300) for _ in workers))
    for worker in workers:
        worker.join()

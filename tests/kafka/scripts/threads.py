"""One producer in several threads."""

import os
from itertools import islice
from threading import Thread

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

servers = os.environ["KAFKA_BOOTSTRAP"]

with KafkaAdminClient(bootstrap_servers=servers) as admin:
    admin.create_topics([NewTopic("threads", num_partitions=4, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)


def work(name: str) -> None:
    for number in range(250):
        producer.send("threads", key=name.encode(), value=b"%d" % number)


threads = [Thread(target=work, args=(f"thread-{number}",)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
producer.close()

consumer = KafkaConsumer(
    "threads",
    bootstrap_servers=servers,
    auto_offset_reset="earliest",
    consumer_timeout_ms=300_000,
)
by_key: dict[str, list[int]] = {}
places: dict[str, set[int]] = {}
for message in islice(consumer, 1000):
    by_key.setdefault(message.key.decode(), []).append(int(message.value))
    places.setdefault(message.key.decode(), set()).add(message.partition)
for key in sorted(by_key):
    print(key, len(by_key[key]), by_key[key] == list(range(250)), places[key])

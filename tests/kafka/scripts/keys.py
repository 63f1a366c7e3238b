"""Keys stand in the same partitions as in Kafka."""

import os

from kafka import KafkaAdminClient, KafkaProducer
from kafka.partitioner import Partitioner, murmur2

servers = os.environ["KAFKA_BOOTSTRAP"]


class ByLength(Partitioner):  # type: ignore[misc]
    """As a script would choose."""

    def partition(self, topic, key, serialized_key, value, serialized_value, cluster):  # type: ignore[no-untyped-def]
        return len(serialized_value) % len(cluster.partitions_for_topic(topic))


with KafkaAdminClient(bootstrap_servers=servers) as admin:
    admin.create_topics({"keys": {"num_partitions": 7, "replication_factor": 1}})
with KafkaProducer(bootstrap_servers=servers) as producer:
    print(sorted(producer.partitions_for("keys")))
    for key in (b"", b"a", b"key", b"a longer key", "ключ".encode()):
        print(key, murmur2(key), producer.send("keys", b"v", key=key).get(300).partition)
with KafkaProducer(bootstrap_servers=servers, partitioner=ByLength()) as producer:
    print([producer.send("keys", b"v" * size, key=b"k").get(300).partition for size in range(1, 9)])

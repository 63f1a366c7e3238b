"""What is raised, and by which names it is caught."""

import os
from collections.abc import Callable

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NoOffsetForPartitionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

servers = os.environ["KAFKA_BOOTSTRAP"]


def tried(label: str, wanted: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except wanted as error:
        if issubclass(wanted, KafkaError):
            print(f"{label}: {wanted.__name__}", getattr(error, "retriable", None))
        else:
            print(f"{label}: {wanted.__name__}")
    else:
        print(f"{label}: nothing")


admin = KafkaAdminClient(bootstrap_servers=servers)
admin.create_topics([NewTopic("errors", num_partitions=1, replication_factor=1)])
again = [NewTopic("errors", num_partitions=1, replication_factor=1)]
tried("create again", TopicAlreadyExistsError, lambda: admin.create_topics(again))
tried("delete", UnknownTopicOrPartitionError, lambda: admin.delete_topics(["errors-no"]))

producer = KafkaProducer(bootstrap_servers=servers)
tried("text value", TypeError, lambda: producer.send("errors", "text"))
tried("text key", TypeError, lambda: producer.send("errors", b"v", key="text"))
tried("nothing", ValueError, lambda: producer.send("errors"))
tried("headers", TypeError, lambda: producer.send("errors", b"v", headers=[("h", "text")]))
tried("topic name", ValueError, lambda: producer.send("no such name", b"v"))
tried("partition", ValueError, lambda: producer.send("errors", b"v", partition=7))
tried("too large", MessageSizeTooLargeError, lambda: producer.send("errors", b"v" * 2_000_000))
producer.close()
tried("closed", IllegalStateError, lambda: producer.send("errors", b"v"))

tried("option", KafkaConfigurationError, lambda: KafkaConsumer(bootstrap_servers=servers, grup=1))
tried("option", ValueError, lambda: KafkaProducer(bootstrap_servers=servers, linger=1))

consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none")
partition = TopicPartition("errors", 0)
tried("unassigned", IllegalStateError, lambda: consumer.position(partition))
tried("unassigned", ValueError, lambda: consumer.seek(partition, 0))
tried("no partitions", ValueError, lambda: consumer.seek_to_end())
tried("text", TypeError, lambda: consumer.seek("errors", 0))
tried("no group", IllegalStateError, lambda: consumer.commit())
consumer.assign([partition])
tried("both", IllegalStateError, lambda: consumer.subscribe(["errors"]))
tried("no offset", NoOffsetForPartitionError, lambda: consumer.poll(timeout_ms=300_000))
tried("timeout", ValueError, lambda: consumer.poll(timeout_ms=-1))
consumer.close()
tried("closed", IllegalStateError, lambda: consumer.poll())
nobody = "127.0.0.1:1"
tried(
    "nobody",
    KafkaTimeoutError,
    lambda: KafkaProducer(bootstrap_servers=nobody, bootstrap_timeout_ms=1000),
)
admin.close()

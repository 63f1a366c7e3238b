"""Two members share four partitions; what a listener is told."""

import os
import time
from collections.abc import Callable

from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)

servers = os.environ["KAFKA_BOOTSTRAP"]

with KafkaAdminClient(bootstrap_servers=servers) as admin:
    admin.create_topics({"members": {"num_partitions": 4, "replication_factor": 1}})
    admin.wait_for_topics(["members"])


class Noting(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()
        self.came: list[int] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.held -= set(revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.held |= set(assigned)
        self.came.append(len(assigned))


def member(listener: ConsumerRebalanceListener) -> KafkaConsumer:
    found = KafkaConsumer(
        bootstrap_servers=servers, group_id="members-group", auto_offset_reset="earliest"
    )
    found.subscribe(["members"], listener=listener)
    return found


def polled_until(is_so: Callable[[], bool], *members: KafkaConsumer) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + 300
    while not is_so() and time.monotonic() < deadline:
        for each in members:
            for records in each.poll(timeout_ms=50).values():
                found += [int(record.value) for record in records]
    return found


one, other = Noting(), Noting()
first = member(one)
polled_until(lambda: len(one.held) == 4, first)
print(len(one.held), one.held == first.assignment())
second = member(other)
polled_until(lambda: len(one.held) == len(other.held) == 2, first, second)
print(len(one.held), len(other.held), sorted(each.partition for each in one.held | other.held))
print(first.assignment() == one.held, second.assignment() == other.held)

with KafkaProducer(bootstrap_servers=servers) as producer:
    for number in range(40):
        producer.send("members", b"%d" % number, partition=number % 4)
seen: list[int] = []
deadline = time.monotonic() + 300
while len(seen) < 40 and time.monotonic() < deadline:
    for each in (first, second):
        for records in each.poll(timeout_ms=100).values():
            seen += [int(record.value) for record in records]
print(len(seen), sorted(seen) == list(range(40)))
second.close()
polled_until(lambda: len(one.held) == 4, first)
print(len(one.held), first.subscription())
first.close()
print(len(one.held))

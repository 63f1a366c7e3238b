"""A node has just died: every call of the clients on threads works within its own deadline.

The suite of clients of the simulator strikes at each message of each asynchronous call; these run
on the same cores. Here are the drivers on threads and what only the synchronous admin client can,
each first look-up included, on real nodes: clients are made after the death.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidelog.client import (
    AdminClient,
    ClientQuota,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
    TopicPartition,
)
from tidelog.testing import TestCluster
from tidelog.wire.errors import TidelogError

pytestmark = pytest.mark.slow

TOPIC = "t"
T0 = TopicPartition(TOPIC, 0)
GROUP = "readers"
FIRST = b"first"
CALLS_AT_ONCE = 8
WAIT_S = 90.0
"""For a call: beyond its own deadline, which is a minute at most."""
THIS_TOPIC = ConfigResource(ConfigResourceType.TOPIC, TOPIC)

Call = Callable[[TestCluster, str], object]


def administered(work: Callable[[AdminClient, str], object]) -> Call:
    """By an admin client of its own."""

    def call(cluster: TestCluster, name: str) -> object:
        with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            return work(admin, name)

    return call


def consumed(work: Callable[[Any], object], *, group: bool = False) -> Call:
    """By a consumer of its own."""

    def call(cluster: TestCluster, name: str) -> object:
        group_id = f"{GROUP}-{name}" if group else None
        consumer = cluster.consumer(
            group_id=group_id, auto_offset_reset="earliest", enable_auto_commit=False
        )
        with consumer:
            return work(consumer)

    return call


def first_record(consumer: Any) -> bytes:
    consumer.subscribe([TOPIC])
    return bytes(next(consumer).value)


def assigned_position(consumer: Any) -> int:
    consumer.assign([T0])
    return int(consumer.position(T0))


def record_behind_a_seek(consumer: Any) -> bool:
    consumer.assign([T0])
    consumer.seek(T0, 1)
    return bool(next(consumer).offset == 1)


def committed(consumer: Any) -> int:
    consumer.assign([T0])
    consumer.commit({T0: 1})
    return int(consumer.committed(T0))


def member_commits(consumer: Any) -> bool:
    first_record(consumer)
    consumer.commit()
    return consumer.committed(T0) is not None


def sent(cluster: TestCluster, name: str) -> int:
    with cluster.producer() as producer:
        return producer.send(TOPIC, name.encode()).get(WAIT_S).partition


def sent_at_once(cluster: TestCluster, name: str) -> int:
    with cluster.producer() as producer:
        future = producer.send_batch(TOPIC, [name.encode()] * 3)
        producer.flush(WAIT_S)
        return len(future.get(WAIT_S))


def partitions_for(cluster: TestCluster, name: str) -> set[int]:
    del name
    with cluster.producer() as producer:
        return set(producer.partitions_for(TOPIC))


ANYTHING = object()
CALLS: dict[str, tuple[Call, object]] = {
    "first_record": (consumed(first_record), FIRST),
    "member_first_record": (consumed(first_record, group=True), FIRST),
    "position": (consumed(assigned_position), 0),
    "seek": (consumed(record_behind_a_seek), True),
    "beginning_offsets": (consumed(lambda c: c.beginning_offsets([T0])), {T0: 0}),
    "end_offsets": (consumed(lambda c: c.end_offsets([T0])[T0] >= 2), True),
    "offsets_for_times": (consumed(lambda c: c.offsets_for_times({T0: 0})[T0].offset), 0),
    "partitions_for_topic": (consumed(lambda c: c.partitions_for_topic(TOPIC)), {0}),
    "topics": (consumed(lambda c: TOPIC in c.topics()), True),
    "committed": (consumed(committed, group=True), 1),
    "member_commits": (consumed(member_commits, group=True), True),
    "send": (sent, 0),
    "send_batch": (sent_at_once, 3),
    "partitions_for": (partitions_for, {0}),
    "create_topics": (
        administered(lambda a, name: a.create_topics([NewTopic(name, 1, 2)])[0].name),
        ANYTHING,
    ),
    "list_topics": (administered(lambda a, _: TOPIC in a.list_topics()), True),
    "describe_topics": (administered(lambda a, _: a.describe_topics([TOPIC])[0].name), TOPIC),
    "describe_cluster": (administered(lambda a, _: a.describe_cluster()), ANYTHING),
    "describe_log_dirs": (administered(lambda a, _: a.describe_log_dirs()), ANYTHING),
    "describe_configs": (administered(lambda a, _: len(a.describe_configs([THIS_TOPIC]))), 1),
    "alter_configs": (
        administered(
            lambda a, _: a.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"retention.ms": "-1"})]
            )
        ),
        None,
    ),
    "list_partition_offsets": (
        administered(lambda a, _: list(a.list_partition_offsets({T0: "earliest"}))),
        [T0],
    ),
    "delete_records": (administered(lambda a, _: a.delete_records({T0: 0})), {T0: 0}),
    "elect_leaders": (
        administered(lambda a, _: a.elect_leaders(ElectionType.PREFERRED, [T0])),
        ANYTHING,
    ),
    "list_partition_reassignments": (
        administered(lambda a, _: a.list_partition_reassignments()),
        ANYTHING,
    ),
    "list_brokers": (administered(lambda a, _: len(a.list_brokers())), 3),
    "describe_metadata_quorum": (
        administered(lambda a, _: a.describe_metadata_quorum()),
        ANYTHING,
    ),
    "list_metadata": (administered(lambda a, _: a.list_metadata()), ANYTHING),
    "describe_features": (administered(lambda a, _: a.describe_features()), ANYTHING),
    "describe_client_quotas": (administered(lambda a, _: a.describe_client_quotas()), ANYTHING),
    "alter_client_quotas": (
        administered(lambda a, name: a.alter_client_quotas({name: ClientQuota()})),
        None,
    ),
    "list_groups": (administered(lambda a, _: a.list_groups()), ANYTHING),
    "describe_groups": (administered(lambda a, _: len(a.describe_groups([GROUP]))), 1),
    "list_group_offsets": (
        administered(lambda a, _: a.list_group_offsets(GROUP)[GROUP][T0].offset),
        1,
    ),
    "reset_group_offsets": (
        administered(lambda a, _: a.reset_group_offsets(GROUP, {T0: 1})[T0].offset),
        1,
    ),
}


def test_calls_end_well_while_the_leader_and_controller_are_dead(
    tell: Callable[[str], None],
) -> None:
    with TestCluster(brokers=3) as cluster:
        prepare(cluster)
        for victim in dict.fromkeys((cluster.leader_of(TOPIC), cluster.controller())):
            cluster.kill(victim)
            failures = call_all(cluster, f"without-{victim}")
            cluster.restart(victim)
            cluster.heal()
            assert failures == {}
        tell(f"{len(CALLS)} calls on threads, each begun behind a death")


def prepare(cluster: TestCluster) -> None:
    with cluster.admin() as admin, cluster.producer() as producer:
        admin.create_topics([NewTopic(TOPIC, 1, 3)])
        for value in (FIRST, b"second"):
            producer.send(TOPIC, value).get(WAIT_S)
        admin.list_group_offsets(GROUP)
        admin.alter_group_offsets(GROUP, {T0: 1})


def call_all(cluster: TestCluster, name: str) -> dict[str, str]:
    """What went wrong, by call."""
    failures: dict[str, str] = {}
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        asked = {
            each: pool.submit(call, cluster, f"{name}-{each}") for each, (call, _) in CALLS.items()
        }
        for each, future in asked.items():
            try:
                found = future.result(WAIT_S)
            except TidelogError as error:
                failures[each] = repr(error)
                continue
            right = CALLS[each][1]
            if right is not ANYTHING and found != right:
                failures[each] = f"{found!r}, not {right!r}"
    return failures

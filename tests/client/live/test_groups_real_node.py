"""Groups against real nodes in processes of their own: who gets what, and what survives a kill."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client.support.drivers import BOTH, Clients
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_MS, wait_until
from tidelog.chaos.live.processes.server import BOTH_ROLES
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import (
    AdminClient,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.client.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]

QUICK = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "100",
}


def prepare(bootstrap: str, topic: str, partitions: int, count: int, *, replicas: int = 1) -> None:
    """A topic with so many records a partition, and groups that move quickly."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.CLUSTER, "", QUICK)])

        def is_made() -> bool:
            # A broker that a busy machine keeps from its heartbeats takes no replica for a moment.
            (made,) = admin.try_create_topics([NewTopic(topic, partitions, replicas)])
            if isinstance(made, TidelogError):
                if made.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                    raise made
                return False
            return True

        wait_until(is_made, told=lambda: "there were never enough brokers for the topic")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(partitions * count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """Stays up; each test has a topic and a group of its own."""
    with running_node(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(params=BOTH, ids=repr)
def clients(request: pytest.FixtureRequest) -> Clients:
    found = request.param
    assert isinstance(found, Clients)
    return found


def until(holds: Callable[[], object], members: Sequence[Any], found: list[int]) -> None:
    """Members are polled until it holds; what they read is added to `found`."""

    def turn() -> None:
        for each in members:
            for records in each.poll(10).values():
                found.extend(int(record.value) for record in records)

    def told() -> str:
        return f"it never came to hold: {[sorted(each.assignment()) for each in members]}"

    wait_until(holds, turn=turn, told=told)


def counts(members: Sequence[Any]) -> list[int]:
    """How many partitions each has; none has two owners."""
    owned = [name for each in members for name in each.assignment()]
    assert len(owned) == len(set(owned)), f"an owner too many: {sorted(owned)}"
    return sorted(len(each.assignment()) for each in members)


def test_one_two_four_and_five_members_share_four_partitions(
    clients: Clients, node: NodeProcess
) -> None:
    topic = f"shared-{clients.driver}"
    found: list[int] = []
    prepare(node.bootstrap, topic, 4, 25)
    with ExitStack() as stack:

        def join() -> Any:
            made = clients.Consumer(
                topic,
                group_id=topic,
                bootstrap_servers=node.bootstrap,
                auto_offset_reset="earliest",
            )
            return stack.enter_context(made)

        members = [join()]
        until(lambda: len(found) == 100, members, found)
        for shares in ([2, 2], [1, 1, 2], [1] * 4, [0, 1, 1, 1, 1]):
            members.append(join())
            until(lambda shares=shares: counts(members) == shares, members, found)  # type: ignore[misc]
        until(lambda: [each.is_idle for each in members].count(True) == 1, members, found)
        # A leaver's partitions move, at once.
        members.remove(leaver := next(each for each in members if not each.is_idle))
        leaver.close()
        until(lambda: counts(members) == [1] * 4, members, found)
        other = clients.Consumer(
            topic,
            group_id=f"{topic}-2",
            bootstrap_servers=node.bootstrap,
            auto_offset_reset="earliest",
        )
        stack.enter_context(other)
        again: list[int] = []
        until(lambda: len(again) == 100, [other], again)
    assert sorted(found) == sorted(again) == list(range(100)), "each group everything, once"


def test_eight_members_share_six_partitions(node: NodeProcess) -> None:
    prepare(node.bootstrap, "six", 6, 10)
    found: list[int] = []
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                Consumer(
                    "six",
                    group_id="eight",
                    bootstrap_servers=node.bootstrap,
                    auto_offset_reset="earliest",
                )
            )
            for _ in range(8)
        ]
        until(lambda: counts(members) == [0, 0, 1, 1, 1, 1, 1, 1], members, found)
        until(lambda: len(found) == 60, members, found)
        until(lambda: [each.is_idle for each in members].count(True) == 2, members, found)
    assert sorted(found) == list(range(60))


def test_a_silent_member_is_dropped(node: NodeProcess) -> None:
    prepare(node.bootstrap, "silent", 4, 0)
    options: dict[str, Any] = {"group_id": "silent", "bootstrap_servers": node.bootstrap}
    with Consumer("silent", **options) as first, Consumer("silent", **options) as second:
        until(lambda: counts([first, second]) == [2, 2], [first, second], [])
        assert first._member is not None
        first._member.stop()
        began = time.monotonic()
        until(lambda: len(second.assignment()) == 4, [second], [])
        assert time.monotonic() - began > 1.0, "its session was not over"
        assert first.poll(0) == {}


def test_a_group_goes_on_after_its_node_was_killed(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        prepare(node.bootstrap, "t", 2, 50)
        found: list[int] = []
        with Consumer(
            "t",
            group_id="g",
            bootstrap_servers=node.bootstrap,
            auto_offset_reset="earliest",
            max_poll_records=10,
            retry_backoff_ms=50,
        ) as consumer:
            until(lambda: len(found) >= 50, [consumer], found)
            consumer.commit()
            node.restart()
            until(lambda: len(found) >= 100, [consumer], found)
            consumer.commit()
            names = [TopicPartition("t", number) for number in range(2)]
            assert [consumer.committed(name) for name in names] == [50, 50]
        assert sorted(found) == list(range(100)), "each once: the member never lost its place"


def test_a_coordinator_killed_in_the_middle_of_commits_loses_none(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, nodes=3, voters=3, roles=BOTH_ROLES) as quorum:
        quorum.begin()
        addresses = {each.place.client_address: each for each in quorum.nodes.values()}
        bootstrap = ",".join(addresses)
        _wait_for_brokers(bootstrap, 3)
        prepare(bootstrap, "t", 1, 1, replicas=3)
        name = TopicPartition("t", 0)
        with Consumer("t", group_id="g", bootstrap_servers=bootstrap) as consumer:
            until(lambda: consumer.assignment() == {name}, [consumer], [])
            assert consumer._member is not None
            where = consumer._member._core.coordinator.address
            assert where is not None
            killer = threading.Timer(0.3, addresses[where].kill)
            killer.start()
            stored, began = 0, time.monotonic()
            while killer.is_alive() or time.monotonic() < began + 3.0:
                consumer.commit({name: stored + 1}, timeout_ms=60_000)
                stored += 1
                consumer.poll(0)
            assert consumer.committed(name) == stored
            assert consumer._member._core.coordinator.address != where
        assert stored > 5


def _wait_for_brokers(bootstrap: str, count: int) -> None:
    with AdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=HANG_MS) as admin:

        def are_there() -> bool:
            with contextlib.suppress(TidelogError):
                return len(admin.describe_cluster().brokers) == count
            return False

        wait_until(are_there, told=lambda: "the brokers never registered")

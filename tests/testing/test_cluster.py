"""Test clusters: what is done to a node happens to it, and what was acknowledged is there after."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import HANG_SECONDS, with_more_time
from tidelog.client import TopicPartition
from tidelog.testing import TestCluster
from tidelog.testing.loop import THREAD_NAME
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]

GOAWAY = 7


@pytest.fixture(scope="module")
def shared() -> Iterator[TestCluster]:
    with TestCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: TestCluster) -> TestCluster:
    """Three nodes, all up."""
    shared.heal()
    return shared


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: TestCluster) -> str:
    return cluster.create_topic(request.node.name[:60], replication_factor=3)


def fill(cluster: TestCluster, topic: str, first: int, count: int) -> None:
    """Numbers, each acknowledged by all."""
    # More than one address is given: a paused node takes its share of the first call, not all.
    with cluster.producer(linger_ms=0, request_timeout_ms=5_000) as producer:
        for future in [producer.send(topic, b"%d" % n) for n in range(first, first + count)]:
            future.get(HANG_SECONDS)


def numbers(cluster: TestCluster, topic: str, count: int) -> list[int]:
    with cluster.consumer(topic, auto_offset_reset="earliest") as consumer:
        return [int(next(consumer).value) for _ in range(count)]


def test_what_was_acknowledged_outlives_the_kill_of_its_leader(
    cluster: TestCluster, topic: str
) -> None:
    fill(cluster, topic, 0, 20)
    leader = cluster.leader_of(topic)
    cluster.kill(leader)
    assert cluster.state_of(leader) == "killed"
    fill(cluster, topic, 20, 20)
    assert cluster.leader_of(topic) not in (0, leader)
    cluster.restart(leader)
    assert cluster.state_of(leader) == "running"
    assert numbers(cluster, topic, 40) == list(range(40))


def test_a_killed_node_refuses_connections_and_comes_back_at_its_address(
    cluster: TestCluster,
) -> None:
    host, _, port = cluster.bootstrap.split(",")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=HANG_SECONDS) as connection:
        cluster.kill(3)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(4096):
                received += data
    assert GOAWAY not in frame_types(received), "a dead process says no goodbye"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=HANG_SECONDS)
    cluster.restart(3)
    socket.create_connection((host, int(port)), timeout=HANG_SECONDS).close()


def frame_types(data: bytes) -> list[int]:
    """Of the HTTP/2 frames in it."""
    found, place = [], 0
    while place + 9 <= len(data):
        found.append(data[place + 3])
        place += 9 + int.from_bytes(data[place : place + 3], "big")
    return found


def test_a_stop_leaves_a_marker_and_a_kill_leaves_none(cluster: TestCluster) -> None:
    marker = cluster.directory_of(2) / "clean_shutdown.json"
    cluster.stop(2)
    assert marker.is_file()
    cluster.restart(2)
    cluster.kill(2)
    assert not marker.exists()


def test_a_paused_leader_is_replaced_and_answers_again_when_it_goes_on(
    cluster: TestCluster, topic: str
) -> None:
    fill(cluster, topic, 0, 5)
    leader = cluster.leader_of(topic)
    cluster.pause(leader)
    assert cluster.state_of(leader) == "paused"
    fill(cluster, topic, 5, 5)
    assert cluster.leader_of(topic) != leader
    cluster.resume(leader)
    assert numbers(cluster, topic, 10) == list(range(10))


def test_a_crash_of_all_machines_keeps_what_was_acknowledged(
    cluster: TestCluster, topic: str
) -> None:
    fill(cluster, topic, 0, 30)
    for node in cluster.nodes:
        cluster.crash(node)
    cluster.heal()
    assert numbers(cluster, topic, 30) == list(range(30))
    fill(cluster, topic, 30, 1)
    assert numbers(cluster, topic, 31) == list(range(31))


def test_a_kill_keeps_what_a_crash_takes() -> None:
    """One node whose flushes come late: acks=1 is answered before them."""
    settings = {"flush.replicated_interval_ms": 3_600_000}
    with TestCluster(settings=settings) as cluster:
        topic = cluster.create_topic("late", configs={"flush": "replicated"})
        with cluster.producer(acks=1, linger_ms=0) as producer:
            producer.send(topic, b"cached").get(HANG_SECONDS)
        cluster.kill(1)
        cluster.restart(1)
        assert end_of(cluster, topic) == 1, "the page cache outlives a process"
        with cluster.producer(acks=1, linger_ms=0) as producer:
            producer.send(topic, b"also cached").get(HANG_SECONDS)
        assert end_of(cluster, topic) == 2
        cluster.crash(1)
        cluster.restart(1)
        # The start after the kill has flushed what it found.
        assert end_of(cluster, topic) == 1


def end_of(cluster: TestCluster, topic: str) -> int:
    name = TopicPartition(topic, 0)
    with cluster.consumer() as consumer:
        return consumer.end_offsets([name])[name]


def test_mistakes_are_refused_in_words(cluster: TestCluster) -> None:
    for wrong, code in (
        (lambda: cluster.kill(4), ErrorCode.INVALID_ARGUMENT),
        (lambda: cluster.resume(0), ErrorCode.INVALID_ARGUMENT),
        (lambda: cluster.leader_of("nowhere"), ErrorCode.UNKNOWN_TOPIC),
        (lambda: cluster.start(), ErrorCode.INVALID_ARGUMENT),
        (lambda: TestCluster(brokers=10), ErrorCode.INVALID_ARGUMENT),
        (lambda: TestCluster().bootstrap, ErrorCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(TidelogError) as refused:
            wrong()
        assert refused.value.code is code
    cluster.kill(1)
    with pytest.raises(TidelogError, match=r"it is killed.*restart\(1\)"):
        cluster.kill(1)


def test_a_wrong_setting_is_refused_and_leaves_nothing_behind() -> None:
    cluster = TestCluster(settings={"auto_create_topic": False})
    with pytest.raises(TidelogError, match="auto_create_topics"):
        cluster.start()
    assert cluster.is_closed
    assert [each.name for each in threading.enumerate()].count(THREAD_NAME) <= 1, (
        "of the shared one"
    )


def test_settings_reach_the_nodes() -> None:
    with TestCluster(settings={"auto_create_topics": False}) as cluster:

        def refused(limit_ms: int) -> None:
            with (
                cluster.producer(max_block_ms=limit_ms) as producer,
                pytest.raises(TidelogError) as caught,
            ):
                producer.send("never-made", b"x").get(HANG_SECONDS)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC

        with_more_time(refused, 300)


def test_a_cluster_that_has_ended_took_its_clients_and_its_directory_along() -> None:
    with TestCluster() as cluster:
        directory = cluster.directory_of(1)
        assert directory.is_dir()
        producer = cluster.producer()
        producer.send("t", b"x").get(HANG_SECONDS)
        consumer = cluster.consumer("t", auto_offset_reset="earliest")
        assert next(consumer).value == b"x"
    assert producer.is_closed
    assert consumer.is_closed
    assert not directory.exists()
    with pytest.raises(TidelogError) as refused:
        cluster.kill(1)
    assert refused.value.code is ErrorCode.CLOSED

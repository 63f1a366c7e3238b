"""`tidelog consume -g` that is told to end: what it still commits, and for whom it waits."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import ANNOUNCED, announced_command, cli_environment
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tidelog.cli.frame import interrupt
from tidelog.cli.records import consume_group
from tidelog.cli.records.consume import Printing
from tidelog.client import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.client.errors import WakeupError

RECORDS = 50
NAME = TopicPartition("orders", 0)
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


class ToldToEnd:
    """A consumer whose every poll is woken up; it notes what comes then."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def wakeup(self) -> None:
        raise AssertionError("no signal comes in this test")

    def poll_batches(self, *_: int, include_left_out: bool) -> list[object]:
        assert include_left_out
        raise WakeupError(tried="poll", happened="a signal came")

    def assignment(self) -> set[TopicPartition]:
        return {NAME}

    def commit(self, offsets: object, timeout_ms: int | None) -> None:
        self.calls.append(("commit", timeout_ms))

    def close(self, *, autocommit: bool) -> None:
        self.calls.append(("close", autocommit))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_last_commit_has_less_than_the_command_and_the_leaving_the_rest(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "_told", [number])
    monkeypatch.setattr(consume_group, "stop_in_order", lambda _: None)
    consumer = ToldToEnd()
    reading = consume_group.GroupReading(consumer, Printing(lambda *_: b""), None)  # type: ignore[arg-type]
    reading._written[NAME] = 7
    with pytest.raises(KeyboardInterrupt):
        reading.run()
    longest_ms = consume_group.LAST_COMMIT_MS[number]
    assert consumer.calls == [("commit", longest_ms), ("close", False)]
    assert longest_ms < interrupt.ORDER_SECONDS_MAX[number] * 1000


def test_a_person_waits_for_a_moment_and_a_supervisor_for_seconds() -> None:
    assert interrupt.ORDER_SECONDS_MAX[signal.SIGINT] < 0.2
    assert consume_group.LAST_COMMIT_MS[signal.SIGTERM] >= 1_000
    assert interrupt.ORDER_SECONDS_MAX[signal.SIGTERM] < 10, "then a container is killed"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A topic of one partition with RECORDS records."""
    with running_node(tmp_path) as started:
        with AdminClient(bootstrap_servers=started.bootstrap) as admin:
            admin.create_topics([NewTopic("orders")])
        with Producer(bootstrap_servers=started.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number)
        yield started


def member_that_has_read_all(node: NodeProcess) -> "subprocess.Popen[bytes]":
    """A process that has printed every record, and waits for more."""
    member = subprocess.Popen(
        announced_command("consume", "orders", "-g", "watchers", "-o", "beginning"),
        env=cli_environment(node.bootstrap),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert member.stdout is not None
    assert member.stdout.readline() == ANNOUNCED
    for number in range(RECORDS):
        assert member.stdout.readline() == b"%d\n" % number
    return member


@contextlib.contextmanager
def silenced(node: NodeProcess) -> Iterator[None]:
    """Connections stay, and nothing is answered."""
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.live
def test_a_member_that_a_supervisor_ends_commits_and_leaves(node: NodeProcess) -> None:
    member = member_that_has_read_all(node)
    member.send_signal(signal.SIGTERM)
    _, errors = member.communicate(timeout=HANG_SECONDS)
    assert (member.returncode, errors) == (143, b"")
    with AdminClient(bootstrap_servers=node.bootstrap) as admin:
        stored = admin.list_group_offsets("watchers")["watchers"]
        assert {name: each.offset for name, each in stored.items()} == {NAME: RECORDS}
        assert admin.describe_groups(["watchers"])[0].members == ()


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="a signal silences the node")
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_member_ends_while_its_coordinator_says_nothing(
    node: NodeProcess, number: int, code: int
) -> None:
    member = member_that_has_read_all(node)
    with silenced(node):
        member.send_signal(number)
        _, errors = member.communicate(timeout=HANG_SECONDS)
    assert (member.returncode, errors) == (code, b"")


@pytest.mark.slow
@pytest.mark.live
def test_ctrl_c_ends_a_member_and_says_nothing(node: NodeProcess) -> None:
    member = member_that_has_read_all(node)
    member.send_signal(signal.SIGINT)
    _, errors = member.communicate(timeout=HANG_SECONDS)
    assert (member.returncode, errors) == (130, b"")

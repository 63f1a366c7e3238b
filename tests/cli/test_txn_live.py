"""`tidelog txn` on a real node: who holds readers back, and what ends it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS, wait_until
from tidelog.cli.main import main
from tidelog.client import Consumer, Producer, TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

pytestmark = [pytest.mark.slow, pytest.mark.live]

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    # However busy the machine is.
    monkeypatch.setenv("TIDELOG_TIMEOUT_MS", str(int(HANG_SECONDS * 1000)))
    with running_node(tmp_path) as started:
        yield started


class Desk:
    """Types commands at the node."""

    def __init__(self, node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._node = node
        self._capsys = capsys

    def ok(self, *words: str) -> str:
        assert main([*words, "-b", self._node.bootstrap]) == 0, self._capsys.readouterr()
        out, errors = self._capsys.readouterr()
        assert errors == ""
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))


class Reader:
    """Of committed records, from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None
        )
        self._consumer.assign([ORDERS])
        self._consumer.seek_to_beginning(ORDERS)

    def read(self) -> list[bytes]:
        """All that it was given so far, after one more look."""
        for records in self._consumer.poll(timeout_ms=200).values():
            self.values += [each.value for each in records]
        return self.values

    def wait(self, *values: bytes) -> None:
        wait_until(lambda: self.read() == list(values), told=lambda: self.values)

    def close(self) -> None:
        self._consumer.close()


def begun(node: NodeProcess, transactional_id: str, value: bytes) -> Producer:
    """A producer in the middle of a transaction."""
    producer = Producer(
        bootstrap_servers=node.bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=600_000,
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", value, partition=0).get(HANG_SECONDS)
    return producer


def test_who_holds_readers_back_is_found_from_their_partition_and_ended(
    node: NodeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(node, capsys)
    desk.ok("topic", "create", "orders")
    stuck, reader = begun(node, "billing", b"stuck"), Reader(node.bootstrap)
    try:
        other = begun(node, "till", b"done")
        other.commit_transaction()
        other.close()
        for _ in range(3):
            assert reader.read() == [], "what is committed waits behind what is open"
        assert desk.ok("txn", "list", "--on", "orders:0", "-q") == "billing\n"
        assert desk.ok("txn", "list", "--on", "orders:0", "--older-than", "1h", "-q") == ""
        (told,) = desk.json("txn", "describe", "billing")
        assert told["state"] == "ongoing"
        assert told["deadline_ms"] == told["start_time_ms"] + 600_000
        assert told["partitions"] == [{"topic": "orders", "partition": 0, "is_ended": False}]
        assert desk.ok("txn", "hanging", "--older-than", "0s") == "nothing hangs\n"
        assert "nothing was aborted" in desk.ok("txn", "abort", "billing")
        assert reader.read() == []
        assert desk.ok("txn", "abort", "billing", "--execute").startswith("aborted billing")
        reader.wait(b"done")
        with pytest.raises(TidelogError) as caught:
            stuck.commit_transaction()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTED
    finally:
        reader.close()
        stuck.close()


@pytest.mark.parametrize(
    ("decision", "seen"), [("--commit", (b"prepared", b"later")), ("--abort", (b"later",))]
)
def test_a_prepared_transaction_is_decided_without_whoever_prepared_it(
    node: NodeProcess,
    capsys: pytest.CaptureFixture[str],
    decision: str,
    seen: tuple[bytes, ...],
) -> None:
    desk = Desk(node, capsys)
    desk.ok("topic", "create", "orders")
    assert desk.ok("txn", "prepared") == "no transaction is prepared\n"
    producer, reader = begun(node, "ledger", b"prepared"), Reader(node.bootstrap)
    try:
        producer.prepare_transaction()
        producer.close()
        (found,) = desk.json("txn", "prepared")
        assert (found["transactional_id"], found["decision"]) == ("ledger", None)
        assert "nothing was decided" in desk.ok("txn", "prepared", "ledger", decision)
        assert reader.read() == []
        desk.ok("txn", "prepared", "ledger", decision, "--execute")
        assert desk.ok("txn", "prepared") == "no transaction is prepared\n"
        later = begun(node, "till", b"later")
        later.commit_transaction()
        later.close()
        reader.wait(*seen)
    finally:
        reader.close()

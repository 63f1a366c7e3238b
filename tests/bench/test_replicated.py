"""Bulk lines, their pairs, and the counting of several clients over one span."""

import asyncio
import os
from pathlib import Path

import pytest

from bench.group_commit import GroupCommit
from bench.growth.many import sizes
from bench.opaque import OpaqueBatch, Sealed
from bench.processes import ChildFailedError
from bench.replicated import (
    CALLS,
    CLIENTS,
    READS,
    KafkaLines,
    TidelogLines,
    chain_lines,
    pairs,
    settings,
    together,
)
from bench.table import Throughput
from bench.turns import Line, Turns, in_turn
from bench.window import Counts, in_span
from tidelog.client.engine.produce.accumulator import Route
from tidelog.wire.batch import read_header, verify_checksum


class OfNodes:
    """A cluster that is never started."""

    name = "nothing"
    bootstrap = ""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.pids: list[int] = []

    def create_topic(self, name: str, settings: object, partitions: int) -> None:
        """Not here."""

    def delete_topic(self, name: str) -> None:
        """Not here."""


def every_line(nodes: int) -> dict[str, Line]:
    cluster = OfNodes(nodes)
    lines = [
        *TidelogLines(cluster, 1.0).lines(),
        *KafkaLines(cluster, 1.0).lines(),
        *chain_lines(nodes, 1.0),
    ]
    by_key = {line.key: line for line in lines}
    assert len(by_key) == len(lines)
    return by_key


@pytest.mark.parametrize("nodes", [1, 3])
def test_every_bulk_line_stands_beside_the_chain_and_kafka_with_as_many_clients(nodes: int) -> None:
    by_key = every_line(nodes)
    beside: dict[str, list[str]] = {}
    for pair in pairs(nodes):
        ours, theirs = by_key[pair.ours], by_key[pair.theirs]
        assert (ours.direction, ours.clients, ours.replicas) == (
            theirs.direction,
            theirs.clients,
            theirs.replicas,
        )
        beside.setdefault(pair.ours, []).append(pair.theirs.split("-")[0])
    bulk = [key for key in by_key if key.startswith("tidelog") and "send" not in key]
    by_call = len(CALLS) * len(settings()) // 2
    assert len(bulk) == len(settings()) + by_call + len(READS) * len(CLIENTS)
    for key in bulk:
        chains = 1 if _waits_for_a_flush(by_key[key], nodes) else 2
        assert beside[key] == [*["bare"] * chains, "kafka"], key


def _waits_for_a_flush(line: Line, nodes: int) -> bool:
    """One replica alone waits for its own disk, whatever the topic says; a reader for none."""
    return line.acks == "all" and (line.flush == "sync" or nodes == 1)


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_waits_for_a_disk_stands_beside_what_waits_for_a_disk(nodes: int) -> None:
    by_key = every_line(nodes)
    for pair in pairs(nodes):
        ours, theirs = by_key[pair.ours], by_key[pair.theirs]
        if ours.direction == "produce":
            unflushed = ("none", "no disk", "written, no flush")
            assert _waits_for_a_flush(ours, nodes) == (theirs.flush not in unflushed), pair


@pytest.mark.parametrize("nodes", [1, 3])
def test_what_is_not_flushed_stands_beside_a_chain_that_writes_as_well(nodes: int) -> None:
    by_key = every_line(nodes)
    flushes: dict[str, list[str]] = {}
    for pair in pairs(nodes):
        if pair.ours.startswith("tidelog") and pair.theirs.startswith("bare"):
            flushes.setdefault(pair.ours, []).append(by_key[pair.theirs].flush)
            assert nodes == 1 or by_key[pair.ours].acks in (by_key[pair.theirs].acks, "-"), pair
    assert flushes["tidelog-1-replicated-3"] == ["no disk", "written, no flush"]
    assert flushes["tidelog-all-sync-3"] == ["fdatasync, group commit"]


def test_what_is_only_written_is_told_once_all_of_it_is_stored(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    stored: list[int] = []
    commit = GroupCommit(str(tmp_path), is_flushed=False)

    def note() -> None:
        stored.append(commit.stored)
        if commit.stored == len(b"abc"):
            loop.stop()

    commit.on_stored(loop, note)
    for _ in b"abc":
        commit.append(b"message")
    loop.run_forever()
    loop.close()
    assert stored == sorted(stored)
    assert stored[-1] == len(b"abc")
    assert os.fstat(commit._file).st_size == len(b"message" * 3)


def test_only_the_tenths_inside_the_span_are_counted() -> None:
    early = Counts(slots={9: 1_000, 10: 5, 19: 7, 20: 1_000}, record_bytes=100)
    other = Counts(slots={15: 8}, record_bytes=100)
    moved = in_span([early, other], first=10, slots=10)
    assert (moved.records, moved.seconds) == (20, 1.0)


def test_a_client_that_moved_nothing_in_the_span_spoils_it() -> None:
    idle = Counts(slots={1: 10}, record_bytes=100)
    with pytest.raises(ChildFailedError, match="moved nothing"):
        in_span([Counts(slots={10: 1}, record_bytes=100), idle], first=10, slots=10)


def test_tools_that_time_themselves_are_added_up_by_their_rates() -> None:
    fast = Throughput(records=1_000, record_bytes=100, seconds=1.0)
    slow = Throughput(records=1_000, record_bytes=100, seconds=2.0)
    assert together([lambda: fast, lambda: slow]).records_per_second == pytest.approx(1_500)


def test_a_sealed_batch_carries_its_identity_and_a_right_sum() -> None:
    sealed = Sealed.of(100, 16 * 1024)
    batch = OpaqueBatch(sealed, Route("t", bytes(16), 6), 3, 0)
    assert [batch.encoded] == [None]
    batch.producer_id, batch.producer_epoch, batch.base_sequence = 7, 2, 40
    batch.attempts = 1
    made = batch.encoded
    assert made is not None
    header = read_header(made[0])
    verify_checksum(made[0], header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.record_count == len(batch.columns) == sealed.records
    assert len(made[0]) <= 16 * 1024


def test_a_line_that_fails_is_told_and_the_rest_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(repetition: int) -> Throughput:
        raise ChildFailedError(f"out of luck in {repetition}")

    def work(repetition: int) -> Throughput:
        return Throughput(records=100, record_bytes=100, seconds=1.0)

    lines = [
        Line(key="a", direction="produce", client="A", run=fail),
        Line(key="b", direction="produce", client="B", run=work),
    ]
    turns = Turns(lines, 2, "nothing", settle=lambda: None)
    turns.measure()
    assert (turns.rate_of("a"), turns.rate_of("b")) == (0.0, 100.0)
    assert "A (a) failed: out of luck in 0" in capsys.readouterr().out
    assert in_turn(lines, 1) == lines[::-1]


def test_the_slope_of_partitions_begins_with_the_ten_that_change() -> None:
    assert sizes(10_000) == [10, 1_000, 10_000]
    assert sizes(50) == [10, 50]

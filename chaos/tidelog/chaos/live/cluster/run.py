"""One run of a cluster under a fault from its first record to the verdict, and the figures of it.

Owns the order: load, rounds, no more load, every broker killed and started, everything read by an
independent reader, judged. It is the same for every system that is put under it.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, Protocol

import msgspec

from tidelog.chaos.live.cluster.gaps import acknowledged_at, longest_gap_ms
from tidelog.chaos.live.cluster.journal import read_journal
from tidelog.chaos.live.cluster.load import ClusterLoad
from tidelog.chaos.live.cluster.rounds import (
    NS_PER_MS,
    Budget,
    Fault,
    RoundDone,
    run_rounds,
    wait_warm,
    wait_whole,
)
from tidelog.chaos.live.cluster.under_test import ClusterUnderTest
from tidelog.chaos.live.cluster.verdict import LiveVerdict, judge_files, run_reader
from tidelog.chaos.live.quorum.rounds import percentile

BEFORE_NS: Final = 200_000_000
"""The span of a round begins so long before the strike."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True):
    """How long partitions stood still in the rounds of a run."""

    led_ms: tuple[float, ...]
    """One for each partition that the victim led, of every round."""
    all_ms: tuple[float, ...]
    """One for each partition, of every round."""


class RunDone(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run has shown."""

    rounds: tuple[RoundDone, ...]
    unavailable: Unavailable
    verdict: LiveVerdict

    @property
    def is_valid(self) -> bool:
        """Whether every round counts."""
        return bool(self.rounds) and all(each.counts for each in self.rounds)

    @property
    def is_stuck(self) -> bool:
        """Whether something stood still until the fault was undone."""
        return any(each.is_stuck for each in self.rounds)


class Readers(Protocol):
    """Clients that read all the while; their verdict is their own."""

    def begin(self) -> None:
        """They start, and read."""
        ...

    def end(self, acknowledged: int, journals: Mapping[str, Path]) -> None:
        """So much was acknowledged, to the producers of these journals: read it and end."""
        ...


def run_under_fault(
    cluster: ClusterUnderTest,
    fault: Fault,
    directory: Path,
    *,
    budget: Budget,
    rate: float,
    seed: int,
    readers: Readers | None = None,
) -> RunDone:
    """From the first record to the verdict."""
    clients = directory / "clients"
    clients.mkdir(parents=True)
    load = ClusterLoad(cluster, clients, rate=rate)
    try:
        load.begin()
        wait_warm(cluster, load)
        if readers is not None:
            readers.begin()
        began, before = time.monotonic(), load.acknowledged
        rounds = run_rounds(cluster, load, fault, budget, Random(seed))
        seconds, acknowledged = time.monotonic() - began, load.acknowledged - before
        journals = load.end()
        if readers is not None:
            readers.end(load.acknowledged, journals)
    finally:
        load.kill()
    stood = unavailable(journals, rounds, cluster.partition_count)
    print(
        f"{cluster.name}: {len(rounds)} rounds in {seconds:.0f} s, {cluster.partition_count} "
        f"partitions, {acknowledged / seconds:.0f} records/s acknowledged, {load.held_back} held "
        "back"
    )
    print(f"  no acknowledgement in what the broker led: {figures_of(stood.led_ms)}")
    print(f"  no acknowledgement in any partition:       {figures_of(stood.all_ms)}")
    print(f"  after the strike, round by round: {stages_of(rounds)}", flush=True)
    wait_whole(cluster)
    cluster.restart_all()
    wait_whole(cluster)
    file = clients / "read.jsonl"
    run_reader(cluster.reader(), file)
    verdict = judge_files(
        journals, file, topic=cluster.topic, partition_count=cluster.partition_count
    )
    return RunDone(
        rounds=tuple(rounds),
        unavailable=stood,
        verdict=verdict,
    )


def unavailable(
    journals: Mapping[str, Path], rounds: Sequence[RoundDone], partition_count: int
) -> Unavailable:
    """From just before each strike until all was in sync again."""
    entries = (each for file in journals.values() for each in read_journal(file))
    ends = acknowledged_at(entries, partition_count)
    led: list[float] = []
    everywhere: list[float] = []
    for each in rounds:
        for partition in range(partition_count):
            from_ns = each.struck_ns - BEFORE_NS
            gap_ms = longest_gap_ms(ends[partition], from_ns, each.whole_ns)
            everywhere.append(gap_ms)
            if partition in each.led:
                led.append(gap_ms)
    return Unavailable(led_ms=tuple(led), all_ms=tuple(everywhere))


def stages_of(rounds: Sequence[RoundDone]) -> str:
    """How long until others had taken over, as far as anybody had to."""
    stages = {
        "another controller": [(each.controller_ns, each.struck_ns) for each in rounds],
        "led by others": [(each.moved_ns, each.struck_ns) for each in rounds],
        "all acknowledged again": [(each.returned_ns, each.struck_ns) for each in rounds],
    }
    told = []
    for name, spans in stages.items():
        took_ms = [(at - since) / NS_PER_MS for at, since in spans if at is not None]
        if took_ms:
            told.append(
                f"{name} p50 {percentile(took_ms, 0.5):.0f} ms, max {max(took_ms):.0f} ms"
                f" (of {len(took_ms)})"
            )
    return "; ".join(told) or "nothing"


def figures_of(samples: Sequence[float]) -> str:
    """p50, p99 and the largest."""
    if not samples:
        return "nothing"
    return (
        f"p50 {percentile(samples, 0.5):.0f} ms, p99 {percentile(samples, 0.99):.0f} ms, "
        f"max {max(samples):.0f} ms"
    )

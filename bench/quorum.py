"""`python -m bench.quorum [--peers etcd]`: commits of the metadata quorum, beside etcd's puts.

Owns the order of a run and what is printed. Three voters each, fsync before the answer, the same
client for both, lines in turn within each repetition, medians and every ratio. It must never fail
for being slow: a peer that is missing, or a line that fails, is one printed line.
"""

import argparse
import itertools
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc
import msgspec

from bench.peers.etcd import cluster as etcd
from bench.peers.kafka.node import PeerMissingError
from bench.processes import cpu_seconds
from bench.quorum_leaders import leader_first
from bench.rounds import Calls, run_calls
from bench.table import Table, count, load_average, median, ratio
from tidelog.chaos.live.processes.server import BOTH_ROLES
from tidelog.chaos.live.quorum.client import ALTER_QUOTAS, FORWARD, quota_request
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.v1 import controller_pb2
from tidelog.wire.errors import TidelogError

VOTERS: Final = 3
KEYS: Final = 1_000
CALLS: Final = {1: 200, 32: 2_000, 128: 3_000}
"""Concurrency → calls of one repetition."""
FORWARD_MS: Final = 30_000
FAILURES: Final = (grpc.RpcError, PeerMissingError, TidelogError, OSError)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write."""

    key: str
    name: str
    address: str
    method: str
    make: Callable[[int], bytes]
    pids: tuple[int, ...]
    """Of the servers."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One repetition of a line at one concurrency."""

    calls: Calls
    cpu_ms: float
    """Of all servers together, for one commit."""


COMPARED: Final = (
    ("tidelog-leader", "etcd-leader"),
    ("tidelog-straight", "etcd-leader"),
    ("tidelog-follower", "etcd-follower"),
)


def tidelog_lines(cluster: QuorumCluster) -> list[Line]:
    """Through the leader's broker, through another one, and straight to the leader."""
    leader, follower = cluster.leader(), cluster.follower()
    pids = tuple(node.pid for node in cluster.running())
    numbers = itertools.count(1)

    def quota(number: int) -> bytes:
        return quota_request(f"client-{number % KEYS}", next(numbers))

    def forwarded(number: int) -> bytes:
        return controller_pb2.ForwardRequest(
            cluster_id=cluster.cluster_id,
            broker_id=leader.node_id,
            method=ALTER_QUOTAS,
            request=quota(number),
            principal="bench",
            timeout_ms=FORWARD_MS,
        ).SerializeToString()

    at_leader, at_follower = leader.place.client_address, follower.place.client_address
    rows = (
        ("tidelog-leader", "Tidelog, leader's broker", at_leader, ALTER_QUOTAS, quota),
        ("tidelog-follower", "Tidelog, another broker", at_follower, ALTER_QUOTAS, quota),
        (
            *("tidelog-straight", "Tidelog, straight to the leader"),
            *(leader.place.cluster_address, FORWARD, forwarded),
        ),
    )
    return [_line(*row, pids) for row in rows]


def etcd_lines(cluster: etcd.EtcdCluster) -> list[Line]:
    """At the leader, and at another member, which hands it on."""
    leader, follower, *_ = leader_first(cluster.addresses)
    numbers = itertools.count(1)

    def put(number: int) -> bytes:
        return etcd.put_request(b"client-%d" % (number % KEYS), b"%d" % next(numbers))

    rows = (
        ("etcd-leader", "etcd, leader", leader, etcd.PUT, put),
        ("etcd-follower", "etcd, another member", follower, etcd.PUT, put),
    )
    return [_line(*row, tuple(cluster.pids)) for row in rows]


def _line(
    key: str,
    name: str,
    address: str,
    method: str,
    make: Callable[[int], bytes],
    pids: tuple[int, ...],
) -> Line:
    return Line(key=key, name=name, address=address, method=method, make=make, pids=pids)


class Run:
    """What was measured so far, by line and concurrency."""

    def __init__(self, repetitions: int, share: float) -> None:
        self._repetitions = repetitions
        self._share = share
        self.measured: dict[tuple[str, int], list[Measured]] = {}

    def measure(self, lines: Sequence[Line]) -> None:
        """Every second repetition goes through the list backwards."""
        for repetition in range(self._repetitions):
            order = lines if repetition % 2 == 0 else lines[::-1]
            for concurrency, calls in CALLS.items():
                for line in order:
                    self._measure(line, max(concurrency, int(calls * self._share)), concurrency)

    def _measure(self, line: Line, calls: int, concurrency: int) -> None:
        before = sum(map(cpu_seconds, line.pids))
        try:
            found = run_calls(
                line.address, line.method, line.make, calls=calls, concurrency=concurrency
            )
        except FAILURES as failure:
            print(f"{line.name} at {concurrency} failed: {failure}", flush=True)
            return
        cpu_ms = (sum(map(cpu_seconds, line.pids)) - before) * 1_000 / calls
        one = Measured(calls=found, cpu_ms=cpu_ms)
        self.measured.setdefault((line.key, concurrency), []).append(one)

    def show(self, lines: Sequence[Line]) -> None:
        """Medians of every line."""
        table = Table(
            f"Metadata commits, {VOTERS} voters, fsync before the answer, {self._repetitions} "
            "repetitions in turn, medians",
            (
                *("written through", "concurrency", "commits/s", "lowest", "highest"),
                *("p50 ms", "p99 ms", "servers' CPU ms"),
            ),
        )
        for concurrency in CALLS:
            for line in lines:
                found = self.measured.get((line.key, concurrency), [])
                if found:
                    table.add(line.name, str(concurrency), *_cells(found))
        table.show()

    def show_ratios(self, lines: Sequence[Line]) -> None:
        """Leaders beside leaders, others beside others."""
        names = {line.key: line.name for line in lines}
        table = Table(
            "Tidelog ÷ etcd, same run",
            ("Tidelog", "etcd", "concurrency", "commits/s", "p50", "p99"),
        )
        for ours, theirs in COMPARED:
            for concurrency in CALLS:
                here = self.measured.get((ours, concurrency), [])
                there = self.measured.get((theirs, concurrency), [])
                if here and there:
                    row = _ratios(here, there)
                    table.add(names[ours], names[theirs], str(concurrency), *row)
        if table.rows:
            table.show()


def _cells(found: Sequence[Measured]) -> tuple[str, ...]:
    rates = [one.calls.per_second for one in found]
    return (
        *(count(median(rates)), count(min(rates)), count(max(rates))),
        f"{median([one.calls.p50_ms for one in found]):.2f}",
        f"{median([one.calls.p99_ms for one in found]):.2f}",
        f"{median([one.cpu_ms for one in found]):.2f}",
    )


def _ratios(here: Sequence[Measured], there: Sequence[Measured]) -> tuple[str, ...]:
    def of(pick: Callable[[Measured], float]) -> str:
        return ratio(median([pick(one) for one in here]), median([pick(one) for one in there]))

    return (
        of(lambda one: one.calls.per_second),
        of(lambda one: one.calls.p50_ms),
        of(lambda one: one.calls.p99_ms),
    )


def _start_tidelog(stack: ExitStack) -> list[Line]:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-quorum-"))
    cluster = QuorumCluster(Path(directory), nodes=VOTERS, voters=VOTERS, roles=BOTH_ROLES)
    stack.enter_context(cluster).begin()
    return tidelog_lines(cluster)


def _start_etcd(stack: ExitStack) -> list[Line]:
    try:
        etcd.prepare()
        members = stack.enter_context(etcd.EtcdCluster())
        print(f"etcd {etcd.version()}, as its package ships it; {load_average()}", flush=True)
        return etcd_lines(members)
    except FAILURES as failure:
        print(failure, flush=True)
        return []


def main() -> None:
    """Start both, measure in turn, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.quorum", description=__doc__)
    parser.add_argument("--peers", choices=["etcd"], nargs="*", default=[])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the calls of each line")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes are ended too
    with ExitStack() as stack:
        lines = _start_tidelog(stack)
        if "etcd" in given.peers:
            lines += _start_etcd(stack)
        run = Run(given.repetitions, given.share)
        run.measure(lines)
        run.show(lines)
        run.show_ratios(lines)


if __name__ == "__main__":
    main()

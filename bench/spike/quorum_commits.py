"""Commits per second of a metadata quorum, on real files and gRPC over loopback.

    python -m bench.spike.quorum_commits [--voters 3] [--one-process] [--proposers 1 32]

Owns nothing that lasts: the members live in a temporary directory, each in a process of its own or
all in this one. The proposers run in the leader's process, as the active controller does. Beside
the figures stands what one append and fdatasync of the same directory takes, measured before.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.metadata_quorum.quorum.runner import QuorumRunner
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import Entry, Member, MemberId, Members, NodeId, Snapshot
from tidelog.metadata_quorum.storage.identity import format_storage
from tidelog.metadata_quorum.storage.quorum_storage import open_storage
from tidelog.ports import Listener
from tidelog.ports.real.clock import RealClock
from tidelog.ports.real.disk.disk import open_disk
from tidelog.ports.real.network.network import GrpcNetwork
from tidelog.ports.real.random import RealRandom

COMMAND = bytes(200)
LEADER_WAIT_S = 20.0
ROUNDS_OF_FSYNC = 200


class Counting:
    """A state machine that only counts."""

    def __init__(self) -> None:
        self.applied = 0

    def apply(self, entries: Sequence[Entry]) -> None:
        self.applied += len(entries)

    def capture(self) -> Callable[[], Sequence[bytes]]:
        state = (b"%d" % self.applied,)
        return lambda: state

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        self.applied = int(state[0])


def members_at(addresses: Sequence[str]) -> Members:
    return Members(
        tuple(
            Member(id=MemberId(NodeId(node), bytes([node]) * 16), address=address)
            for node, address in enumerate(addresses, start=1)
        )
    )


async def live(node: int, directory: Path, addresses: Sequence[str], work: "Work") -> None:
    """One member until `work` is done; only the leader has work to do."""
    clock = RealClock()
    disk = await open_disk(directory)
    bootstrap = members_at(addresses)
    await format_storage(
        disk,
        cluster_id="bench",
        node_id=node,
        directory_uuid=bytes([node]) * 16,
        bootstrap=bootstrap,
        bootstrap_command=b"first",
    )
    storage = await open_storage(disk)
    network = GrpcNetwork(clock)
    runner = QuorumRunner(
        storage=storage,
        state_machine=Counting(),
        network=network,
        clock=clock,
        random=RealRandom(),
        bootstrap_command=storage.bootstrap_command,
    )
    server = await network.serve(
        Listener(name="cluster", bind=addresses[node - 1]), runner.methods()
    )
    running = asyncio.ensure_future(runner.run(address=addresses[node - 1]))
    try:
        await work.run(runner)
    finally:
        await runner.stop()
        await running
        await server.stop(0)
        await network.close()
        await disk.shutdown()


class Work:
    """What the leader measures; the others wait for `done`."""

    def __init__(self, proposers: Sequence[int], seconds: float) -> None:
        self._proposers = proposers
        self._seconds = seconds
        self.done = asyncio.Event()

    async def run(self, runner: QuorumRunner) -> None:
        until = time.monotonic() + LEADER_WAIT_S + self._seconds * len(self._proposers)
        while time.monotonic() < until and not self.done.is_set():
            if runner.describe().role is Role.LEADER and runner.applied_index >= 2:
                await self._measure_all(runner)
                self.done.set()
            await asyncio.sleep(0.05)

    async def _measure_all(self, runner: QuorumRunner) -> None:
        await self._measure(runner, 8, 1.0)
        for count in self._proposers:
            took_ms = await self._measure(runner, count, self._seconds)
            took_ms.sort()
            print(
                json.dumps(
                    {
                        "proposers": count,
                        "commits_per_s": round(len(took_ms) / self._seconds),
                        "p50_ms": round(took_ms[len(took_ms) // 2], 2),
                        "p99_ms": round(took_ms[len(took_ms) * 99 // 100], 2),
                    }
                ),
                flush=True,
            )

    async def _measure(self, runner: QuorumRunner, count: int, seconds: float) -> list[float]:
        took_ms: list[float] = []
        end = time.monotonic() + seconds
        term = runner.describe().term

        async def propose_on() -> None:
            while (begun := time.monotonic()) < end:
                await runner.propose(COMMAND, term=term)
                took_ms.append((time.monotonic() - begun) * 1_000)

        await asyncio.gather(*(propose_on() for _ in range(count)))
        return took_ms


def fsync_ms(directory: Path) -> float:
    """The median of an append of one command and its fdatasync."""
    took: list[float] = []
    handle = os.open(directory / "fsync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(ROUNDS_OF_FSYNC):
            begun = time.monotonic()
            os.write(handle, COMMAND)
            os.fdatasync(handle)
            took.append((time.monotonic() - begun) * 1_000)
    finally:
        os.close(handle)
    return sorted(took)[len(took) // 2]


def free_addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def live_together(directory: Path, addresses: Sequence[str], work: Work) -> None:
    await asyncio.gather(
        *(
            live(node, directory / str(node), addresses, work)
            for node in range(1, len(addresses) + 1)
        )
    )


def run_apart(arguments: argparse.Namespace, directory: Path, addresses: Sequence[str]) -> None:
    """A process for each member; the first one that ends was the leader."""
    children = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.spike.quorum_commits"),
                *("--member", str(node), "--directory", str(directory / str(node))),
                *("--seconds", str(arguments.seconds), "--addresses", *addresses),
                *("--proposers", *map(str, arguments.proposers)),
            ]
        )
        for node in range(1, len(addresses) + 1)
    ]
    until = time.monotonic() + LEADER_WAIT_S + arguments.seconds * (len(arguments.proposers) + 2)
    while time.monotonic() < until and all(child.poll() is None for child in children):
        time.sleep(0.1)
    for child in children:
        child.terminate()
        child.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--one-process", action="store_true")
    parser.add_argument("--proposers", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--member", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--addresses", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        arguments.directory.mkdir()
        work = Work(arguments.proposers, arguments.seconds)
        asyncio.run(live(arguments.member, arguments.directory, arguments.addresses, work))
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        print(json.dumps({"fdatasync_p50_ms": round(fsync_ms(directory), 3)}), flush=True)
        addresses = free_addresses(arguments.voters)
        if not arguments.one_process:
            run_apart(arguments, directory, addresses)
            return
        for node in range(1, arguments.voters + 1):
            (directory / str(node)).mkdir()
        work = Work(arguments.proposers, arguments.seconds)
        asyncio.run(live_together(directory, addresses, work))


if __name__ == "__main__":
    main()

"""A replicated Tidelog cluster for live faults: real nodes, each path between them a real proxy.

Owns the topic, the nodes and the paths of a run, and is what the cases strike at. The harness
itself asks nodes at the addresses that they listen at, so that it sees through every partition.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tidelog.chaos.live.cluster.paths import CLIENTS, Paths
from tidelog.chaos.live.cluster.seats import Lookout, Seat, Seen
from tidelog.chaos.live.processes.server import BOTH_ROLES, ServerProcess, run_command
from tidelog.chaos.live.processes.toxiproxy import running_server
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import AdminClient, ElectionType, NewTopic, TopicPartition
from tidelog.wire.errors import TidelogError

TOPIC: Final = "chaos"
PARTITIONS: Final = 64
REPLICAS: Final = 3
IN_SYNC_MIN: Final = 2
REGISTER_SECONDS_MAX: Final = 30.0
BALANCE_MS: Final = 10_000
LOG_TAIL_CHARACTERS: Final = 1_500


class TidelogCluster:
    """All nodes are broker and controller. Enter it to start it, leave it to end it."""

    name = "Tidelog"
    topic = TOPIC

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        partitions: int = PARTITIONS,
        data_dirs: dict[int, Path] | None = None,
        acks: str = "all",
        settings: dict[str, str] | None = None,
        planted: str = "",
    ) -> None:
        self.partition_count = partitions
        self._acks = acks
        self._settings = {"min.insync.replicas": str(IN_SYNC_MIN), **(settings or {})}
        self._stack = ExitStack()
        self._lookout = Lookout()
        self._stack.callback(self._lookout.close)
        try:
            self.paths = Paths(self._stack.enter_context(running_server()))
            self._stack.callback(self.paths.close)
            self.quorum = self._stack.enter_context(
                QuorumCluster(
                    directory,
                    nodes=nodes,
                    voters=nodes,
                    roles=BOTH_ROLES,
                    data_dirs=data_dirs,
                    detour=self.paths.lay,
                    planted=planted,
                )
            )
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> "TidelogCluster":
        try:
            self.quorum.begin()
            self.quorum.wait(self._is_registered, REGISTER_SECONDS_MAX, tried="register brokers")
            with AdminClient(bootstrap_servers=self.bootstrap) as admin:
                topic = NewTopic(self.topic, self.partition_count, REPLICAS, self._settings)
                admin.create_topics([topic])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _is_registered(self) -> str | None:
        seen = self._see(None)
        count = 0 if seen is None else len(seen.addresses)
        return None if count == len(self.nodes) else f"{count} of {len(self.nodes)} brokers serve"

    @property
    def nodes(self) -> dict[int, ServerProcess]:
        """By number."""
        return self.quorum.nodes

    @property
    def numbers(self) -> Sequence[int]:
        """Of the brokers."""
        return list(self.nodes)

    @property
    def bootstrap(self) -> str:
        """As clients are told: through their proxies."""
        return ",".join(self.paths.address((CLIENTS, number)) for number in self.nodes)

    # -- what is seen ----------------------------------------------------------------------------

    def _see(self, without: int | None) -> Seen | None:
        """The newest of what those know that answer."""
        found: list[Seen] = []
        for node in self.quorum.answering():
            if node.node_id == without:
                continue
            try:
                found.append(self._lookout.look(node.place.client_address, self.topic))
            except TidelogError:
                continue
        return max(found, key=lambda seen: seen.version, default=None)

    def seats(self, *, without: int | None = None) -> Sequence[Seat]:
        """See `ClusterUnderTest`."""
        seen = self._see(without)
        return () if seen is None else seen.seats

    def controller(self, *, without: int | None = None) -> int:
        """See `ClusterUnderTest`."""
        seen = self._see(without)
        return -1 if seen is None else seen.controller

    def log_tails(self) -> str:
        """See `ClusterUnderTest`."""
        return "\n".join(
            f"--- node {node.node_id}\n{node.log_text()[-LOG_TAIL_CHARACTERS:]}"
            for node in self.nodes.values()
        )

    # -- what is done ----------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].kill()

    def start(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].start()

    def pause(self, number: int) -> None:
        """See `StoppableCluster`."""
        self.nodes[number].pause()

    def resume(self, number: int) -> None:
        """See `StoppableCluster`."""
        self.nodes[number].resume()

    def balance(self) -> None:
        """See `ClusterUnderTest`."""
        every = [TopicPartition(self.topic, number) for number in range(self.partition_count)]
        with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.elect_leaders(ElectionType.PREFERRED, every, timeout_ms=BALANCE_MS)

    def restart_all(self) -> None:
        """See `ClusterUnderTest`."""
        numbers = [node.node_id for node in self.quorum.running()]
        for number in numbers:
            self.nodes[number].kill()
        for number in numbers:
            forget_pages(self.nodes[number].data_dir)
        self.quorum.start(*numbers)
        self.quorum.wait_settled()

    def check_files(self) -> list[str]:
        """`tidelog storage info` of every stopped node that finds damage, and what it says."""
        problems = []
        for node in self.nodes.values():
            ended = run_command(["storage", "info", str(node.data_dir)])
            if ended.code != 0:
                problems.append(f"node {node.node_id}: {ended.output}{ended.errors}")
        return problems

    def writer(self, name: str, journal: Path, rate: float) -> Sequence[str]:
        """See `ClusterUnderTest`."""
        return [
            *(sys.executable, "-m", "tidelog.chaos.live.cluster.writer"),
            *("--name", name, "--bootstrap", self.bootstrap, "--topic", self.topic),
            *("--partitions", str(self.partition_count), "--rate", str(rate)),
            *("--journal", str(journal), "--acks", self._acks),
        ]

    def reader(self) -> Sequence[str]:
        """See `ClusterUnderTest`."""
        addresses = [
            node.place.client_address for node in self.quorum.running() if not node.is_paused
        ]
        return [sys.executable, "-m", "tidelog.chaos.live.cluster.reader", self.topic, *addresses]


def forget_pages(directory: Path) -> None:
    """What is stored there leaves the page cache, as far as it is on the disk."""
    for file in directory.rglob("*"):
        if not file.is_file():
            continue
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

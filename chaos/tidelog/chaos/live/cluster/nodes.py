"""A replicated Tidelog cluster of real processes: what every live case of a cluster strikes at.

Owns the topic, the nodes and, where a case breaks paths, the proxies on each path between them.
Further nodes are brokers only, which join when told to. The harness itself asks nodes at the
addresses that they listen at, so that it sees through every partition; what is done to the cluster
is typed as an operator types it, with `tidelog` commands.
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
from tidelog.chaos.live.processes.server import (
    BOTH_ROLES,
    Condition,
    Ended,
    Reach,
    ServerProcess,
    run_command,
)
from tidelog.chaos.live.processes.toxiproxy import running_server
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import AdminClient, ElectionType, NewTopic, TopicPartition
from tidelog.client.types.admin import BrokerStatus
from tidelog.wire.errors import ErrorCode, TidelogError

TOPIC: Final = "chaos"
PARTITIONS: Final = 64
REPLICAS: Final = 3
IN_SYNC_MIN: Final = 2
VOTERS: Final = 3
BROKER_ONLY: Final = ("broker",)
WRITER: Final = "tidelog.chaos.live.cluster.writer"
READER: Final = "tidelog.chaos.live.cluster.reader"
REGISTER_SECONDS_MAX: Final = 60.0
COMMAND_SECONDS_MAX: Final = 300.0
REACH_MS: Final = 30_000
ANSWER_MS: Final = 60_000
BALANCE_MS: Final = 10_000
LOG_TAIL_CHARACTERS: Final = 1_500


class TidelogCluster:
    """The first `voters` nodes are broker and controller, `further` ones only brokers.

    Enter it to start it, leave it to end it.
    """

    name = "Tidelog"
    topic = TOPIC

    def __init__(
        self,
        directory: Path,
        *,
        voters: int = VOTERS,
        further: int = 0,
        joins_at_once: bool = False,
        partitions: int = PARTITIONS,
        partitions_most: int | None = None,
        has_paths: bool = True,
        data_dirs: dict[int, Path] | None = None,
        writer: str = WRITER,
        acks: str = "all",
        settings: dict[str, str] | None = None,
        planted: str = "",
    ) -> None:
        self.partition_count = partitions
        self.partitions_most = partitions if partitions_most is None else partitions_most
        """How many the topic has in the end."""
        self.first = tuple(range(1, voters + 1))
        self.further = tuple(range(voters + 1, voters + further + 1))
        self._joins_at_once = joins_at_once
        self._writer = writer
        self._acks = acks
        self._settings = {"min.insync.replicas": str(IN_SYNC_MIN), **(settings or {})}
        self._stack = ExitStack()
        self._lookout = Lookout()
        self._stack.callback(self._lookout.close)
        self._paths: Paths | None = None
        try:
            if has_paths:
                self._paths = Paths(self._stack.enter_context(running_server()))
                self._stack.callback(self._paths.close)
            self.quorum = self._stack.enter_context(
                QuorumCluster(
                    directory,
                    nodes=voters + further,
                    voters=voters,
                    roles=BOTH_ROLES,
                    data_dirs=data_dirs,
                    detour=None if self._paths is None else self._paths.lay,
                    planted=planted,
                )
            )
        except BaseException:
            self._stack.close()
            raise
        addresses = tuple(self.nodes[number].place.cluster_address for number in self.first)
        for number in self.further:
            self.nodes[number] = ServerProcess(
                directory / f"node{number}",
                self.nodes[number].place,
                roles=BROKER_ONLY,
                reach=Reach(bootstrap_servers=addresses),
            )

    def __enter__(self) -> "TidelogCluster":
        try:
            self.quorum.begin()
            self.wait_registered(len(self.first))
            if self._joins_at_once:
                self.join_further()
            self.create_topic()
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

    @property
    def nodes(self) -> dict[int, ServerProcess]:
        """By number."""
        return self.quorum.nodes

    @property
    def numbers(self) -> Sequence[int]:
        """Of the brokers."""
        return list(self.nodes)

    @property
    def paths(self) -> Paths:
        """Between the nodes; only of a cluster that has them."""
        assert self._paths is not None, "a case that breaks paths asks for them"
        return self._paths

    @property
    def bootstrap(self) -> str:
        """The first nodes, which stay: as clients are told, so through proxies if there are any."""
        if self._paths is not None:
            return ",".join(self._paths.address((CLIENTS, number)) for number in self.first)
        return ",".join(self.nodes[number].place.client_address for number in self.first)

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

    def admin(self) -> AdminClient:
        """Patient: on a busy machine a node may answer late."""
        return AdminClient(
            bootstrap_servers=self.bootstrap,
            bootstrap_timeout_ms=REACH_MS,
            request_timeout_ms=ANSWER_MS,
        )

    def brokers(self) -> dict[int, BrokerStatus]:
        """As the controller lists them."""
        with self.admin() as admin:
            return {each.broker_id: each for each in admin.list_brokers()}

    def topic_id(self) -> bytes:
        """Of the topic that has the name now."""
        with self.admin() as admin:
            (topic,) = admin.describe_topics([self.topic])
        return topic.topic_id

    def log_tails(self) -> str:
        """See `ClusterUnderTest`."""
        return "\n".join(
            f"--- node {node.node_id}\n{node.log_text()[-LOG_TAIL_CHARACTERS:]}"
            for node in self.nodes.values()
        )

    def wait(self, condition: Condition, seconds_max: float, *, tried: str) -> float:
        """Until it holds; seconds."""
        return self.quorum.wait(condition, seconds_max, tried=tried)

    def wait_registered(self, count: int) -> None:
        """Until so many brokers are live."""

        def are_live() -> str | None:
            seen = self._see(None)
            found = 0 if seen is None else len(seen.addresses)
            return None if found == count else f"{found} of {count} brokers are live"

        self.wait(are_live, REGISTER_SECONDS_MAX, tried="register brokers")

    # -- what is done ----------------------------------------------------------------------------

    def create_topic(self) -> None:
        """As many partitions as it begins with."""
        topic = NewTopic(self.topic, self.partition_count, REPLICAS, self._settings)
        with self.admin() as admin:
            admin.create_topics([topic])

    def typed(self, *words: str) -> Ended:
        """`tidelog …`, whatever comes of it."""
        options = (f"bootstrap_timeout_ms={REACH_MS}", f"request_timeout_ms={ANSWER_MS}")
        command = [*words, "-b", self.bootstrap, *("-X", options[0]), *("-X", options[1])]
        return run_command(command, seconds_max=COMMAND_SECONDS_MAX)

    def done(self, *words: str) -> str:
        """`tidelog …`, which has to work."""
        ended = self.typed(*words)
        if ended.code != 0:
            raise TidelogError(
                ErrorCode.UNKNOWN, tried=f"tidelog {' '.join(words)}", happened=ended.errors
            )
        return ended.output

    def join_further(self) -> None:
        """Format the further brokers and start them."""
        for number in self.further:
            self.nodes[number].format("--cluster-id", self.quorum.cluster_id, "--broker-only")
        self.quorum.start(*self.further)
        self.wait_registered(len(self.first) + len(self.further))

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
        with self.admin() as admin:
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
            *(sys.executable, "-m", self._writer),
            *("--name", name, "--bootstrap", self.bootstrap, "--topic", self.topic),
            *("--partitions", str(self.partitions_most), "--rate", str(rate)),
            *("--journal", str(journal), "--acks", self._acks),
        ]

    def reader(self) -> Sequence[str]:
        """See `ClusterUnderTest`."""
        addresses = [node.place.client_address for node in self.quorum.answering()]
        return [sys.executable, "-m", READER, self.topic, *addresses]


def directories_of(node: ServerProcess, topic_id: bytes) -> list[str]:
    """What lies of a topic in the directory of a node; also what was set aside."""
    names = (each.name for each in node.data_dir.iterdir())
    return sorted(name for name in names if name.startswith(topic_id.hex()))


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

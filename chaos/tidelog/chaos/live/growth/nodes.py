"""A cluster of real processes that grows and shrinks: three voters, and brokers that come and go.

Owns the nodes and the topic of a run. What is done to the cluster is typed as an operator types it,
with `tidelog` commands; clients reach nodes straight, since no path is broken here.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tidelog.chaos.live.cluster.nodes import IN_SYNC_MIN, REPLICAS, TOPIC, forget_pages
from tidelog.chaos.live.cluster.seats import Seat, Seen, look
from tidelog.chaos.live.processes.server import (
    BOTH_ROLES,
    Condition,
    Ended,
    Reach,
    ServerProcess,
    run_command,
)
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import AdminClient, ElectionType, NewTopic, TopicPartition
from tidelog.client.types.admin import BrokerStatus
from tidelog.wire.errors import ErrorCode, TidelogError

VOTERS: Final = 3
BROKER_ONLY: Final = ("broker",)
REGISTER_SECONDS_MAX: Final = 60.0
COMMAND_SECONDS_MAX: Final = 300.0
REACH_MS: Final = 30_000
ANSWER_MS: Final = 60_000
BALANCE_MS: Final = 10_000
LOG_TAIL_CHARACTERS: Final = 1_500
WRITER: Final = "tidelog.chaos.live.growth.writer"


class GrowingCluster:
    """Nodes 1 to 3 are broker and controller; further ones are brokers, which join when told to."""

    name = "Tidelog"
    topic = TOPIC

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int,
        most: int,
        further: int,
        has_all_at_once: bool = False,
    ) -> None:
        self.partition_count = partitions
        self._has_all_at_once = has_all_at_once
        self.partitions_most = most
        """How many the topic has in the end."""
        self._stack = ExitStack()
        self.quorum = self._stack.enter_context(
            QuorumCluster(directory, nodes=VOTERS + further, voters=VOTERS, roles=BOTH_ROLES)
        )
        voters = [self.nodes[number].place.cluster_address for number in range(1, VOTERS + 1)]
        self.further = tuple(range(VOTERS + 1, VOTERS + further + 1))
        for number in self.further:
            self.nodes[number] = ServerProcess(
                directory / f"node{number}",
                self.nodes[number].place,
                roles=BROKER_ONLY,
                reach=Reach(bootstrap_servers=tuple(voters)),
            )

    def __enter__(self) -> "GrowingCluster":
        try:
            self.quorum.begin()
            self.wait_registered(VOTERS)
            if self._has_all_at_once:
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
        """Of the nodes that run."""
        return [node.node_id for node in self.quorum.running()]

    @property
    def bootstrap(self) -> str:
        """The voters: they stay."""
        return ",".join(self.nodes[number].place.client_address for number in range(1, VOTERS + 1))

    # -- what is seen ----------------------------------------------------------------------------

    def see(self) -> Seen | None:
        """The newest of what those know that answer."""
        found: list[Seen] = []
        for node in self.quorum.answering():
            try:
                found.append(look(node.place.client_address, self.topic))
            except TidelogError:
                continue
        return max(found, key=lambda seen: seen.version, default=None)

    def seats(self, *, without: int | None = None) -> Sequence[Seat]:
        """See `ClusterUnderTest`."""
        del without
        seen = self.see()
        return () if seen is None else seen.seats

    def controller(self, *, without: int | None = None) -> int:
        """See `ClusterUnderTest`."""
        del without
        seen = self.see()
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
            seen = self.see()
            found = 0 if seen is None else len(seen.addresses)
            return None if found == count else f"{found} of {count} brokers are live"

        self.wait(are_live, REGISTER_SECONDS_MAX, tried="register brokers")

    # -- what is done ----------------------------------------------------------------------------

    def create_topic(self) -> None:
        """As many partitions as it begins with."""
        settings = {"min.insync.replicas": str(IN_SYNC_MIN)}
        topic = NewTopic(self.topic, self.partition_count, REPLICAS, settings)
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
        self.wait_registered(VOTERS + len(self.further))

    def kill(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].kill()

    def start(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].start()

    def pause(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].pause()

    def resume(self, number: int) -> None:
        """See `ClusterUnderTest`."""
        self.nodes[number].resume()

    def balance(self) -> None:
        """See `ClusterUnderTest`."""
        every = [TopicPartition(self.topic, number) for number in range(self.partition_count)]
        with self.admin() as admin:
            admin.elect_leaders(ElectionType.PREFERRED, every, timeout_ms=BALANCE_MS)

    def restart_all(self) -> None:
        """See `ClusterUnderTest`."""
        numbers = self.numbers
        for number in numbers:
            self.nodes[number].kill()
        for number in numbers:
            forget_pages(self.nodes[number].data_dir)
        self.quorum.start(*numbers)
        self.quorum.wait_settled()

    def writer(self, name: str, journal: Path, rate: float) -> Sequence[str]:
        """See `ClusterUnderTest`."""
        return [
            *(sys.executable, "-m", WRITER, "--name", name),
            *("--bootstrap", self.bootstrap, "--topic", self.topic),
            *("--partitions", str(self.partitions_most), "--rate", str(rate)),
            *("--journal", str(journal)),
        ]

    def reader(self) -> Sequence[str]:
        """See `ClusterUnderTest`."""
        addresses = [node.place.client_address for node in self.quorum.answering()]
        return [sys.executable, "-m", "tidelog.chaos.live.cluster.reader", self.topic, *addresses]


def directories_of(node: ServerProcess, topic_id: bytes) -> list[str]:
    """What lies of a topic in the directory of a node; also what was set aside."""
    names = (each.name for each in node.data_dir.iterdir())
    return sorted(name for name in names if name.startswith(topic_id.hex()))

"""What is measured, by the number of its nodes: Tidelog, and Apache Kafka beside it.

Owns the start and the end of a cluster of one or three nodes and the topics on it: as many replicas
as nodes, and a majority in sync at least. It must never change a default of a node.
"""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol

from bench.peers.kafka.cluster import KafkaCluster
from bench.peers.kafka.node import KafkaNode
from bench.peers.tidelog_node import TidelogNode
from bench.settings import PARTITIONS, STALL_SECONDS_MAX
from tidelog.chaos.live.processes.server import BOTH_ROLES
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.client import AdminClient, NewTopic

REGISTER_SECONDS_MAX: Final = 30.0


def in_sync_min(nodes: int) -> str:
    """A majority: 1 of 1, 2 of 3."""
    return str(nodes // 2 + 1)


class System(Protocol):
    """A cluster that takes clients."""

    name: str
    nodes: int
    bootstrap: str

    @property
    def pids(self) -> list[int]:
        """Of its nodes."""
        ...

    def create_topic(self, name: str, settings: Mapping[str, str], partitions: int) -> None:
        """One with as many replicas as there are nodes."""
        ...

    def delete_topic(self, name: str) -> None:
        """With what it stores."""
        ...


class Tidelog:
    """One node as `tidelog dev` starts it, or several that are broker and controller both."""

    name = "Tidelog"

    def __init__(self, nodes: int, stack: ExitStack) -> None:
        self.nodes = nodes
        if nodes == 1:
            node = stack.enter_context(TidelogNode())
            self.pids, self.bootstrap = [node.pid], node.bootstrap
        else:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tidelog-"))
            cluster = stack.enter_context(
                QuorumCluster(Path(place), nodes=nodes, voters=nodes, roles=BOTH_ROLES)
            )
            cluster.begin()
            members = cluster.nodes.values()
            self.pids = [node.pid for node in members]
            self.bootstrap = ",".join(node.place.client_address for node in members)
            cluster.wait(self._is_registered, REGISTER_SECONDS_MAX, tried="register brokers")
        self._admin = AdminClient(bootstrap_servers=self.bootstrap)
        stack.callback(self._admin.close)

    def _is_registered(self) -> str | None:
        with AdminClient(bootstrap_servers=self.bootstrap) as admin:
            brokers = admin.describe_cluster().brokers
        count = sum(not broker.is_fenced for broker in brokers)
        return None if count == self.nodes else f"{count} of {self.nodes} brokers serve"

    def create_topic(
        self, name: str, settings: Mapping[str, str], partitions: int = PARTITIONS
    ) -> None:
        """See `System`."""
        ours = {"min.insync.replicas": in_sync_min(self.nodes), **settings}
        self._admin.create_topics([NewTopic(name, partitions, self.nodes, ours)])

    def delete_topic(self, name: str) -> None:
        """See `System`."""
        self._admin.delete_topics([name])


class Kafka:
    """Nodes that are broker and controller both."""

    name = "Apache Kafka"

    def __init__(self, nodes: int, stack: ExitStack) -> None:
        from confluent_kafka.admin import AdminClient as KafkaAdmin

        self.nodes = nodes
        if nodes == 1:
            node = stack.enter_context(KafkaNode())
            self.pids, self.bootstrap = [node.pid], node.bootstrap
        else:
            cluster = stack.enter_context(KafkaCluster(nodes=nodes, partitions=1))
            self.pids, self.bootstrap = cluster.pids, cluster.bootstrap
        self._admin: Any = KafkaAdmin({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(
        self, name: str, settings: Mapping[str, str], partitions: int = PARTITIONS
    ) -> None:
        """See `System`."""
        from confluent_kafka.admin import NewTopic as KafkaTopic  # type: ignore[attr-defined]

        config = {"min.insync.replicas": in_sync_min(self.nodes), **settings}
        topic = KafkaTopic(name, partitions, self.nodes, config=config)
        self._admin.create_topics([topic])[name].result(STALL_SECONDS_MAX)

    def delete_topic(self, name: str) -> None:
        """See `System`."""
        self._admin.delete_topics([name])[name].result(STALL_SECONDS_MAX)

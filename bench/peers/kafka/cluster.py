"""Several Apache Kafka nodes as a cluster under test: the same kill script as Tidelog's.

Owns their processes, one topic on all of them, and what is asked of it. Defaults are Kafka's own;
it must never tune a timeout that decides how long a partition stands still.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.kafka.node import (
    cluster_id,
    format_storage,
    java,
    member_properties,
    wait_listening,
)
from bench.processes import Child
from tidelog.chaos.live.cluster.nodes import IN_SYNC_MIN, REPLICAS, TOPIC, forget_pages
from tidelog.chaos.live.cluster.seats import Seat
from tidelog.chaos.live.processes.ports import free_ports

CALL_SECONDS_MAX: Final = 10.0
SEE_SECONDS_MAX: Final = 3.0
QUIET: Final = {"log_level": 0}


class KafkaCluster:
    """Formatted and listening when constructed; every node is broker and controller."""

    name = "Apache Kafka"
    topic = TOPIC

    def __init__(self, *, nodes: int, partitions: int) -> None:
        self.partition_count = partitions
        self._directory = tempfile.TemporaryDirectory(prefix="chaos-kafka-")
        numbers = range(1, nodes + 1)
        ports = free_ports(2 * nodes)
        self._client_ports = dict(zip(numbers, ports[:nodes], strict=True))
        controllers = dict(zip(numbers, ports[nodes:], strict=True))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[:nodes])
        self._files: dict[int, Path] = {}
        self._children: dict[int, Child] = {}
        identity = cluster_id()
        try:
            for number in numbers:
                file = Path(self._directory.name) / f"node{number}.properties"
                text = member_properties(
                    number, self._client_ports, controllers, self._data(number)
                )
                file.write_text(text)
                format_storage(file, identity)
                self._files[number] = file
            for number in numbers:
                self.start(number)
            self._wait_listening()
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
            self._create_topic()
        except BaseException:
            self.close()
            raise

    def _data(self, number: int) -> Path:
        return Path(self._directory.name) / f"data{number}"

    def _wait_listening(self) -> None:
        for port in self._client_ports.values():
            wait_listening(port)

    def _create_topic(self) -> None:
        topic = NewTopic(
            self.topic,
            num_partitions=self.partition_count,
            replication_factor=REPLICAS,
            config={"min.insync.replicas": str(IN_SYNC_MIN)},
        )
        (future,) = self._admin.create_topics([topic]).values()
        future.result(CALL_SECONDS_MAX)

    def __enter__(self) -> "KafkaCluster":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Every node is gone, and what it stored."""
        for number in list(self._children):
            self.kill(number)
        self._directory.cleanup()

    @property
    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [child.pid for child in self._children.values()]

    @property
    def numbers(self) -> Sequence[int]:
        """Of the brokers."""
        return list(self._files)

    def seats(self, *, without: int | None = None) -> Sequence[Seat]:
        """Any broker may tell: a dead or stopped one does not, and none of them is cut off."""
        del without
        try:
            found = self._admin.list_topics(self.topic, timeout=SEE_SECONDS_MAX)
        except KafkaException:
            return ()
        partitions = found.topics[self.topic].partitions
        return [
            Seat(
                leader=partitions[number].leader,
                leader_epoch=-1,
                replicas=tuple(partitions[number].replicas),
                in_sync=tuple(partitions[number].isrs),
            )
            for number in sorted(partitions)
        ]

    def controller(self, *, without: int | None = None) -> int:
        """Brokers do not tell clients."""
        del without
        return -1

    def kill(self, number: int) -> None:
        """kill -9."""
        child = self._children.pop(number)
        os.kill(child.pid, signal.SIGKILL)
        child.stop()

    def start(self, number: int) -> None:
        """Its JVM begins."""
        self._children[number] = java("kafka.Kafka", str(self._files[number]))

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        os.kill(self._children[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """SIGCONT."""
        os.kill(self._children[number].pid, signal.SIGCONT)

    def balance(self) -> None:
        """Each partition is led again by its first replica."""
        every = [TopicPartition(self.topic, number) for number in range(self.partition_count)]
        self._admin.elect_leaders(ElectionType.PREFERRED, every).result(CALL_SECONDS_MAX)

    def restart_all(self) -> None:
        """kill -9 of all, then all again, with nothing of it in the page cache."""
        numbers = list(self._children)
        for number in numbers:
            self.kill(number)
        for number in numbers:
            forget_pages(self._data(number))
            self.start(number)
        self._wait_listening()

    def writer(self, name: str, journal: Path, rate: float) -> Sequence[str]:
        """A confluent-kafka producer with sequences."""
        return [
            *(sys.executable, "-W", "ignore", "-m", "bench.peers.kafka.writer"),
            *("--name", name, "--bootstrap", self.bootstrap, "--topic", self.topic),
            *("--partitions", str(self.partition_count), "--rate", str(rate)),
            *("--journal", str(journal)),
        ]

    def reader(self) -> Sequence[str]:
        """A confluent-kafka consumer without a group."""
        command = [sys.executable, "-W", "ignore", "-m", "bench.peers.kafka.reader"]
        return [*command, self.bootstrap, self.topic, str(self.partition_count)]

    def log_tails(self) -> str:
        """They are silent unless something is wrong."""
        return ""

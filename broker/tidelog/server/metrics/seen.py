"""What one look at a node found, and the parts of it from which values come.

Owns when a part is there to be asked: what a node does not have (no broker, no member of the
quorum, logs not open yet) gives no values at all, instead of zeros.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.shared.image_counts import PartitionCounts
from tidelog.broker.shared.meter import Histogram, ListenerFigures, Meter, MethodFigures
from tidelog.metadata.image.image import Image
from tidelog.ports import WatchedServer
from tidelog.ports.network import ListenerUsage
from tidelog.server.events.image import RoleCounts
from tidelog.server.metrics.description import BrokerFigures, NodeDescription, QuorumFigures
from tidelog.server.metrics.groups import GroupSums
from tidelog.server.metrics.metered_disk import MeteredDisk
from tidelog.server.metrics.replicas import DirectorySums, ReplicaFigures, ReplicaSums
from tidelog.server.metrics.sources import Sources, WatchCounts
from tidelog.server.metrics.transactions import TransactionSums
from tidelog.server.roles.broker import BrokerRole

Labels = tuple[str, ...]
Value = float | Histogram
Found = Value | Mapping[str, float] | None
"""A value; several by one more label; None: there is none."""

T = TypeVar("T")


class ClusterSums(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, as its active controller counts it."""

    image: Image
    partitions: PartitionCounts
    fenced: int
    """Brokers."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment."""

    sources: Sources
    described: NodeDescription
    cluster: ClusterSums | None = None
    """None: this node is not the active controller."""
    replicas: ReplicaSums | None = None
    """None: it is no broker, or its logs are not open yet."""
    groups: GroupSums | None = None
    """None: it is no broker."""
    transactions: TransactionSums | None = None
    """The same."""
    last_scrape_seconds: float = 0


class Read(msgspec.Struct, frozen=True):
    """Where the values of one metric come from."""

    samples: Callable[[Seen], Iterator[tuple[Labels, Value]]]


class Part(Generic[T]):
    """A part of a node; called with what reads a value from it, it is where values come from."""

    def __init__(self, find: Callable[[Seen], Iterable[tuple[Labels, T]]]) -> None:
        self._find = find

    def __call__(self, read: Callable[[T], Found]) -> Read:
        """Read from each of these parts that is there, under its own labels.

        The loop may turn in between: what grows while calls come is copied before it is walked.
        """

        def samples(seen: Seen) -> Iterator[tuple[Labels, Value]]:
            for labels, part in self._find(seen):
                found = read(part)
                if isinstance(found, Mapping):
                    for label, value in tuple(found.items()):
                        yield (*labels, label), value
                elif found is not None:
                    yield labels, found

        return Read(samples)


def _one(part: T | None) -> Iterable[tuple[Labels, T]]:
    return () if part is None else (((), part),)


def _broker(seen: Seen) -> Iterable[tuple[Labels, BrokerRole]]:
    return _one(seen.sources.broker)


def _recovered(seen: Seen) -> Iterable[tuple[Labels, BrokerRole]]:
    return _one(None if seen.replicas is None else seen.sources.broker)


def _figures(seen: Seen) -> Iterable[tuple[Labels, BrokerFigures]]:
    return _one(seen.described.broker)


def _roles(seen: Seen) -> Iterable[tuple[Labels, RoleCounts]]:
    return _one(None if seen.sources.broker is None else seen.sources.roles)


def _records(seen: Seen) -> Iterable[tuple[Labels, Meter]]:
    return _one(None if seen.sources.broker is None else seen.sources.meter)


def _watched(seen: Seen) -> Iterable[tuple[Labels, WatchCounts]]:
    return _one(None if seen.described.quorum is None else seen.sources.watched)


def _calls(seen: Seen) -> Iterator[tuple[Labels, MethodFigures]]:
    for listener, method, figures in tuple(seen.sources.meter):
        yield (listener, method.rpartition("/")[2]), figures


def _listeners(seen: Seen) -> Iterator[tuple[Labels, ListenerFigures]]:
    for name, figures in seen.sources.meter.listeners.items():
        yield (name,), figures


def _servers(seen: Seen) -> Iterator[tuple[Labels, ListenerUsage]]:
    for listener, server in seen.sources.servers.items():
        if isinstance(server, WatchedServer):
            yield (listener,), server.usage()


def _disks(seen: Seen) -> Iterator[tuple[Labels, MeteredDisk]]:
    for disk in seen.sources.disks:
        yield (disk.name,), disk


def _directories(seen: Seen) -> Iterator[tuple[Labels, LogDirectory]]:
    broker = seen.sources.broker
    for directory in () if broker is None else broker.directories:
        yield (directory.name,), directory


def _open_directories(seen: Seen) -> Iterator[tuple[Labels, LogDirectory]]:
    for labels, directory in _directories(seen):
        if directory.is_open:
            yield labels, directory


def _owners(seen: Seen) -> Iterator[tuple[Labels, LogDirectory]]:
    for _, directory in _open_directories(seen):
        yield (), directory


def _directory_sums(seen: Seen) -> Iterator[tuple[Labels, DirectorySums]]:
    found = {} if seen.replicas is None else seen.replicas.directories
    for labels, directory in _directories(seen):
        yield labels, found.get(directory.name) or DirectorySums()


def _each_replica(seen: Seen) -> Iterator[tuple[Labels, ReplicaFigures]]:
    for each in () if seen.replicas is None else seen.replicas.each:
        yield (each.topic, str(each.partition)), each


def _group_lags(seen: Seen) -> Iterator[tuple[Labels, int]]:
    for name, lag in () if seen.groups is None else seen.groups.lags:
        yield (name,), lag


def _group_partition_lags(seen: Seen) -> Iterator[tuple[Labels, int]]:
    yield from () if seen.groups is None else seen.groups.partition_lags


of_node: Final = Part[Seen](_one)
of_quorum: Final = Part[QuorumFigures](lambda seen: _one(seen.described.quorum))
of_quorum_watch: Final = Part[WatchCounts](_watched)
of_cluster: Final = Part[ClusterSums](lambda seen: _one(seen.cluster))
of_calls: Final = Part[MethodFigures](_calls)
"""By listener and method."""
of_listeners: Final = Part[ListenerFigures](_listeners)
of_servers: Final = Part[ListenerUsage](_servers)
"""By listener."""
of_quotas: Final = Part[Quotas](lambda seen: _one(seen.sources.quotas))
of_records: Final = Part[Meter](_records)
of_disks: Final = Part[MeteredDisk](_disks)
of_broker: Final = Part[BrokerRole](_broker)
of_broker_with_logs: Final = Part[BrokerRole](_recovered)
of_registration: Final = Part[BrokerFigures](_figures)
of_roles: Final = Part[RoleCounts](_roles)
of_directories: Final = Part[LogDirectory](_directories)
of_open_directories: Final = Part[LogDirectory](_open_directories)
of_owners: Final = Part[LogDirectory](_owners)
"""All open directories together: their values are added up."""
of_directory_sums: Final = Part[DirectorySums](_directory_sums)
of_replicas: Final = Part[ReplicaSums](lambda seen: _one(seen.replicas))
of_each_replica: Final = Part[ReplicaFigures](_each_replica)
"""By topic and partition."""
of_groups: Final = Part[GroupSums](lambda seen: _one(seen.groups))
of_transactions: Final = Part[TransactionSums](lambda seen: _one(seen.transactions))
of_group_lags: Final = Part[int](_group_lags)
of_group_partition_lags: Final = Part[int](_group_partition_lags)

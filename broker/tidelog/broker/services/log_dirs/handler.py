"""This broker's data directories as an operator sees them: room, replicas, sizes, what has stopped.

Owns the view of one broker; who asks the others is `rpc.log_dirs`. It must never wait for a disk
that has failed: such a directory is told with its error.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.shared.errors import fresh
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionId, TopicId

REPLICAS_A_TURN: Final = 1_000

Wanted = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; no number: all of the topic. Nothing at all: everything."""


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One replica in a directory."""

    topic_id: TopicId
    partition: PartitionId
    topic_name: str
    size_bytes: int
    log_end_offset: Offset
    lag: int
    """Records up to the leader's high watermark, as far as it was heard of."""
    failure: TidelogError | None


class DirectoryView(msgspec.Struct, frozen=True, kw_only=True):
    """One directory."""

    path: str
    directory_uuid: bytes
    failure: TidelogError | None
    free_bytes: int
    """-1: not known."""
    replicas: tuple[ReplicaView, ...]


class LogDirsHandler:
    """Of one broker."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def describe(self, wanted: Wanted, *, directories_only: bool) -> list[DirectoryView]:
        """In the order of the configuration."""
        held: dict[LogDirectory, list[ReplicaView]] = {}
        if not directories_only:
            for place, replica in enumerate(sorted(self._wanted(wanted), key=_place)):
                held.setdefault(replica.directory, []).append(_view(replica))
                if place % REPLICAS_A_TURN == REPLICAS_A_TURN - 1:
                    await asyncio.sleep(0)
        views = []
        for directory in self._replicas.directories:
            failure = directory.failure
            views.append(
                DirectoryView(
                    path=directory.name,
                    directory_uuid=directory.directory_uuid,
                    failure=None if failure is None else fresh(failure),
                    free_bytes=-1 if failure is not None else await directory.free_bytes(),
                    replicas=tuple(held.get(directory, ())),
                )
            )
        return views

    def _wanted(self, wanted: Wanted) -> Iterator[Replica]:
        for replica in self._replicas:
            key = replica.log.key
            numbers = wanted.get(key.topic_id)
            if not wanted or (numbers is not None and (not numbers or key.partition in numbers)):
                yield replica


def wanted_of(topics: Sequence[tuple[TopicId, Sequence[int]]]) -> Wanted:
    """A topic that is named several times is named with all of its partitions together."""
    named: dict[TopicId, set[int] | None] = {}
    for topic_id, partitions in topics:
        if not partitions:
            named[topic_id] = None
        elif (known := named.setdefault(topic_id, set())) is not None:
            known.update(partitions)
    return {topic_id: frozenset(numbers or ()) for topic_id, numbers in named.items()}


def _place(replica: Replica) -> tuple[bytes, int]:
    return replica.log.key.topic_id, replica.log.key.partition


def _view(replica: Replica) -> ReplicaView:
    log = replica.log
    lag = 0
    if not replica.is_led and replica.directory.is_open:
        heard = replica.directory.owner.leader_watermark(log.key)
        lag = max(0, heard - log.log_end_offset)
    return ReplicaView(
        topic_id=log.key.topic_id,
        partition=log.key.partition,
        topic_name=replica.topic_name,
        size_bytes=log.size_bytes,
        log_end_offset=log.log_end_offset,
        lag=lag,
        failure=None if log.failure is None else fresh(log.failure),
    )

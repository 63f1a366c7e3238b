"""A full disk under one broker of a cluster: what is refused says why, what is stored is read.

Owns the filler, and the look at the broker while there is no room: each partition that it leads is
read from it, and a record for a topic beside the one that is judged has to be refused STORAGE_FULL.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
import msgspec

from tidelog.chaos.live.cluster.faults.processes import Trouble
from tidelog.chaos.live.cluster.nodes import IN_SYNC_MIN, REPLICAS, TidelogCluster
from tidelog.chaos.live.cluster.rounds import Watched
from tidelog.chaos.live.cluster.seats import Seat, look
from tidelog.chaos.live.processes.server import ServerProcess
from tidelog.chaos.live.quorum.full_disk import fill
from tidelog.client import AdminClient, NewTopic
from tidelog.client.wire.calls import ERROR_TRAILER, read_error, read_error_bytes
from tidelog.v1 import records_pb2, records_pb2_grpc
from tidelog.wire.errors import ErrorCode, TidelogError

FULL_SECONDS: Final = 20.0
"""Longer than a replica may lag, so that what others lead goes on without it."""
CALL_SECONDS_MAX: Final = 5.0
TOLD: Final = ("space_low", ErrorCode.STORAGE_FULL.name)
FILLER: Final = "filler"
BESIDE: Final = "beside"
"""A topic that no producer of the run knows."""


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker did while its disk was full."""

    led: int
    """Partitions that it says it leads."""
    read: int
    """Of them, which gave it records."""
    refused: str
    """What a send was answered with; empty: it leads nothing of the other topic."""

    @property
    def is_right(self) -> bool:
        """Reads go on, sends are refused by name."""
        return self.read == self.led and self.refused in ("", ErrorCode.STORAGE_FULL.name)

    @property
    def words(self) -> str:
        """For the run's table."""
        refused = f"a send refused {self.refused}" if self.refused else "no send: it leads none"
        return f"{self.read} of {self.led} led partitions read, {refused}"


class FullDisk(Trouble):
    """No room on one broker's disk for a while; partitions that it leads may stand still."""

    hold_seconds = FULL_SECONDS
    has_to_return = False

    def __init__(self, cluster: TidelogCluster, victim: int) -> None:
        super().__init__([victim])
        self._cluster = cluster
        self._told_before = 0
        self._looked: Looked | None = None
        with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            settings = {"min.insync.replicas": str(IN_SYNC_MIN)}
            count = len(cluster.numbers)
            admin.create_topics([NewTopic(BESIDE, count, REPLICAS, settings)])

    def strike(self, victim: int, draw: Random) -> str:
        """Fill it to the last block."""
        del draw
        node = self._cluster.nodes[victim]
        self._told_before, self._looked = told(node), None
        fill(self._filler(victim))
        return "its disk is full"

    def heal(self, victim: int) -> None:
        """A look first; then there is room again."""
        try:
            self._looked = self._look(self._cluster.nodes[victim])
        finally:
            self._filler(victim).unlink()

    def _filler(self, victim: int) -> Path:
        return self._cluster.nodes[victim].data_dir.parent / FILLER

    def _look(self, node: ServerProcess) -> Looked:
        address = node.place.client_address
        led = _led(node, self._cluster.topic)
        beside = _led(node, BESIDE)
        with grpc.insecure_channel(address) as channel:
            stub = records_pb2_grpc.RecordsServiceStub(channel)
            return Looked(
                led=len(led),
                read=sum(_is_read(stub, self._cluster.topic, each) for each in led),
                refused=_send(stub, BESIDE, beside[0]) if beside else "",
            )

    def felt(self, before: Sequence[Seat], during: Watched, victim: int) -> str | None:
        """It said so, refused sends by name, and let itself be read."""
        del before
        count = told(self._cluster.nodes[victim]) - self._told_before
        looked = self._looked
        if looked is None or not looked.is_right or not (count or during.left_in_sync):
            print(f"  not as it should be: told {count} times; {looked}", flush=True)
            return None
        return (
            f"told {count} times, {looked.words}, {during.left_in_sync} in-sync sets without, "
            f"{during.leaders_moved} leaders moved"
        )


def _led(node: ServerProcess, topic: str) -> list[int]:
    seats = look(node.place.client_address, topic).seats
    return [number for number, seat in enumerate(seats) if seat.leader == node.node_id]


def _is_read(stub: records_pb2_grpc.RecordsServiceStub, topic: str, partition: int) -> bool:
    request = records_pb2.FetchRecordsRequest(topic=topic, partition=partition, fetch_offset=0)
    try:
        return bool(stub.FetchRecords(request, timeout=CALL_SECONDS_MAX).records)
    except grpc.RpcError:
        return False


def _send(stub: records_pb2_grpc.RecordsServiceStub, topic: str, partition: int) -> str:
    """The name of the error; `stored` if there is none."""
    request = records_pb2.ProduceRecordsRequest(topic=topic, partition=partition)
    request.records.add(value=b"no room")
    try:
        answer = stub.ProduceRecords(request, timeout=CALL_SECONDS_MAX)
    except grpc.RpcError as error:
        return _name_of(error)
    return _refusal_in(answer)


def _name_of(failed: Any) -> str:
    for key, value in failed.trailing_metadata() or ():
        if key == ERROR_TRAILER:
            return read_error_bytes(value).code.name
    return f"untyped: {failed.code().name}"


def _refusal_in(answer: records_pb2.ProduceRecordsResponse) -> str:
    for place in answer.places:
        if place.HasField("error"):
            return read_error(place.error).code.name
    return "stored"


def told(node: ServerProcess) -> int:
    """How often its log says that there is no room."""
    text = node.log_text()
    return sum(text.count(word) for word in TOLD)


def check_mount(place: Path | None) -> Path:
    """The mounted disk; an error where none may be mounted."""
    if place is None:
        raise TidelogError(
            ErrorCode.UNAVAILABLE,
            tried="mount a small disk for one node",
            happened=f"user {os.geteuid()} may not",
            hint="Run the case as root, in a container of its own.",
        )
    return place

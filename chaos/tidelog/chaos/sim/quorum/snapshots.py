"""Snapshots of simulated nodes: taken, fetched from a leader in pieces, put in use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.metadata_quorum.raft.effects import FetchSnapshot
from tidelog.metadata_quorum.raft.inputs import (
    SnapshotFetched,
    SnapshotFetchFailed,
    SnapshotProgress,
    SnapshotTaken,
)
from tidelog.metadata_quorum.raft.types import MemberId, Snapshot, SnapshotId
from tidelog.wire.ids import LogIndex

if TYPE_CHECKING:
    from tidelog.chaos.sim.quorum.node import QuorumNode

_SAVE_NS: Final = 30 * MS
_FETCH_TIMEOUT_NS: Final = 1_500 * MS


class PieceRequest(msgspec.Struct, frozen=True):
    """Asks for a snapshot; stands for the calls that fetch it piece by piece."""

    sender: MemberId
    receiver: MemberId
    id: SnapshotId
    fetch: int


class PieceReply(msgspec.Struct, frozen=True):
    """The whole, or None: it is gone."""

    receiver: MemberId
    id: SnapshotId
    fetch: int
    snapshot: Snapshot | None
    state: tuple[bytes, ...]


def begin_own(node: "QuorumNode") -> None:
    """What is applied now, saved after a while."""
    store = node.store
    index = store.applied_index
    node.last_snapshot_index = index
    term = node.cluster.term_applied(node, index)
    if term is None:
        return
    snapshot_id = SnapshotId(end_index=LogIndex(index + 1), term=term)
    state = tuple(store.capture()())
    snapshot = Snapshot(
        id=snapshot_id, members=node.members, size_bytes=sum(len(piece) for piece in state)
    )
    delay_ns = int(MS + node.cluster.flush_random.unit() * _SAVE_NS)
    node.later(delay_ns, _end_own, node, snapshot, state)


def _end_own(node: "QuorumNode", snapshot: Snapshot, state: tuple[bytes, ...]) -> None:
    newest = node.seen.asked.snapshot
    if newest is not None and newest.id >= snapshot.id:
        return
    node.disk.states[snapshot.id] = state
    node.cluster.watch.on_snapshot(node.seen, snapshot)
    node.cluster.trace.note(node.name, "disk:snapshot", str(snapshot.last_index))
    node.give(SnapshotTaken(snapshot=snapshot))


def begin_fetch(node: "QuorumNode", wanted: FetchSnapshot) -> None:
    """Ask the source; if nothing comes, say so."""
    node.fetches += 1
    request = PieceRequest(
        sender=node.member_id, receiver=wanted.source, id=wanted.id, fetch=node.fetches
    )
    node.cluster.wires.send(node.node_id, wanted.source.node_id, request)
    node.later(_FETCH_TIMEOUT_NS, _give_up, node, wanted.id, node.fetches)


def _give_up(node: "QuorumNode", snapshot_id: SnapshotId, fetch: int) -> None:
    if fetch == node.fetches:
        node.fetches += 1
        node.give(SnapshotFetchFailed(id=snapshot_id))


def on_request(node: "QuorumNode", request: PieceRequest) -> None:
    """Answer with what lies here."""
    node.cluster.trace.note(node.name, "net:datagram", "snapshot_request")
    newest = node.seen.flushed.snapshot
    has_it = newest is not None and newest.id == request.id
    reply = PieceReply(
        receiver=request.sender,
        id=request.id,
        fetch=request.fetch,
        snapshot=newest if has_it else None,
        state=tuple(node.disk.states[request.id]) if has_it else (),
    )
    node.cluster.wires.send(node.node_id, request.sender.node_id, reply)


def on_reply(node: "QuorumNode", reply: PieceReply) -> None:
    """Store it, or give up."""
    node.cluster.trace.note(node.name, "net:datagram", "snapshot_reply")
    if reply.fetch != node.fetches:
        return
    if reply.snapshot is None:
        _give_up(node, reply.id, reply.fetch)
        return
    node.give(SnapshotProgress(id=reply.id, position=reply.snapshot.size_bytes // 2))
    delay_ns = int(MS + node.cluster.flush_random.unit() * _SAVE_NS)
    node.later(delay_ns, _end_fetch, node, reply)


def _end_fetch(node: "QuorumNode", reply: PieceReply) -> None:
    if reply.fetch != node.fetches or reply.snapshot is None:
        return
    node.fetches += 1
    node.disk.states[reply.id] = reply.state
    node.cluster.trace.note(node.name, "disk:fetched", str(reply.id.end_index))
    node.give(SnapshotFetched(snapshot=reply.snapshot))


def restore(node: "QuorumNode", snapshot: Snapshot) -> None:
    """It took the place of the log and of the state."""
    state: Sequence[bytes] = node.disk.states[snapshot.id]
    node.store.restore(snapshot, state)
    node.members = snapshot.members
    node.last_snapshot_index = snapshot.last_index
    node.cluster.watch.on_restored(node.seen, snapshot)
    node.cluster.watch.on_state(node.seen, snapshot.last_index, node.store.digest)
    for index in [index for index in node.proposed if index <= snapshot.last_index]:
        for _, done in node.proposed.pop(index):
            done("unknown", None)
    node.answer_reads()

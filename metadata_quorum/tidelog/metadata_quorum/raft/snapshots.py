"""Snapshots: this member's own, and those that a leader offers when its log no longer reaches back.

Owns the fetch, the installation and the trimming of the log. A leader never loads a snapshot; a
follower never gives up entries for one that ends before what it knows to be committed.
"""

from tidelog.metadata_quorum.raft.effects import FetchSnapshot, TrimLog
from tidelog.metadata_quorum.raft.messages import AppendRequest
from tidelog.metadata_quorum.raft.node import Fetching, Installing, Node
from tidelog.metadata_quorum.raft.roles import FollowerState
from tidelog.metadata_quorum.raft.types import Snapshot, SnapshotId
from tidelog.wire.ids import LogIndex


def on_start(node: Node) -> None:
    """A log in storage that does not lead up to the snapshot gives way to it."""
    if not node.must_reset:
        return
    assert node.snapshot is not None, "a log gives way to a snapshot"
    node.emit(node.persistence.reset(node.snapshot, node.hard_state))
    if node.refetch is not None:
        node.refetch.is_cut = True


def on_offer(node: Node, request: AppendRequest) -> None:
    """Fetch it, unless a fetch from this leader is under way: one that is replaced by each newer
    offer would never end.
    """
    assert request.snapshot is not None, "an offer names a snapshot"
    fetching = node.fetching
    if fetching is None or fetching.wanted.source != request.sender:
        wanted = FetchSnapshot(
            source=request.sender, id=request.snapshot, size_bytes=request.snapshot_bytes
        )
        node.fetching = Fetching(wanted=wanted)
        node.emit(wanted)
    respond_position(node, request)


def respond_position(node: Node, request: AppendRequest) -> None:
    """How far the fetch is; the leader goes on offering."""
    node.respond(
        request.sender,
        request.round,
        hint_index=node.commit_index,
        snapshot_position=node.fetching.position if node.fetching else 0,
    )


def on_progress(node: Node, snapshot_id: SnapshotId, position: int) -> None:
    """Told to the leader with the next answer."""
    if node.fetching is not None and node.fetching.wanted.id == snapshot_id:
        node.fetching.position = position


def on_fetch_failed(node: Node, snapshot_id: SnapshotId) -> None:
    """The next offer begins anew."""
    if node.fetching is not None and node.fetching.wanted.id == snapshot_id:
        node.fetching = None


def on_fetched(node: Node, snapshot: Snapshot) -> None:
    """Put it in use if it is still ahead of what is here."""
    fetching = node.fetching
    if fetching is None or fetching.wanted.id != snapshot.id:
        return
    node.fetching = None
    if not isinstance(node.role, FollowerState) or node.installing is not None:
        return
    last = snapshot.last_index
    is_there = node.log.term_at(last) == snapshot.id.term
    if last <= node.commit_index or is_there:
        return
    node.persistence.forget_from(node.commit_index + 1)
    reset = node.persistence.reset(snapshot, node.hard_state)
    node.installing = Installing(sequence=reset.sequence, snapshot=snapshot)
    node.emit(reset)


def on_persisted(node: Node) -> bool:
    """The installed snapshot is flushed: from here on it is what this member has."""
    installing = node.installing
    if installing is None or installing.sequence > node.persistence.flushed_sequence:
        return False
    snapshot = installing.snapshot
    last = snapshot.last_index
    assert last > node.commit_index, "a snapshot never takes back what is committed"
    node.installing = None
    node.snapshot = snapshot
    node.log.reset(last, snapshot.id.term)
    node.membership.reset(last, snapshot.members)
    node.commit_index = node.applied_index = last
    return True


def respond_installed(node: Node) -> None:
    """The leader of this term, if one is known, hears that the end is matched."""
    if node.leader is not None and node.refetch is None:
        node.respond(node.leader, 0, match_index=node.log.last_index)


def on_taken(node: Node, snapshot: Snapshot) -> None:
    """The log before it may go, but for a few entries kept for those who are a little behind."""
    last = snapshot.last_index
    is_older = node.snapshot is not None and last <= node.snapshot.last_index
    if is_older or last > node.applied_index or node.installing is not None:
        return
    node.snapshot = snapshot
    first_kept = LogIndex(snapshot.id.end_index - node.options.entries_kept)
    if first_kept > node.log.first_index and node.refetch is None:
        node.log.trim(first_kept)
        node.membership.trim(node.log.base_index)
        node.emit(TrimLog(first_index=first_kept))

"""What voter and observer say to each other on the metadata stream. Values only."""

import msgspec

from tidelog.metadata_quorum.raft.types import Entry, Members, NodeId, SnapshotId
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex, Term


class ObserveBegin(msgspec.Struct, frozen=True, kw_only=True):
    """The observer's first words: who it is and where it goes on."""

    cluster_id: str
    node_id: NodeId
    next_index: LogIndex
    """The first entry wanted; 1: it has nothing."""
    last_applied_term: Term
    """Of the entry before; 0: there is none."""
    credit_bytes: int


class ObserveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to here is applied; more may be sent."""

    applied_index: LogIndex
    credit_bytes: int


ObserverMessage = ObserveBegin | ObserveProgress


class SnapshotPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a snapshot's file; pieces come in order of position, nothing between them."""

    id: SnapshotId
    position: int
    data: bytes
    total_bytes: int


class CommittedEntries(msgspec.Struct, frozen=True, kw_only=True):
    """They follow on what was sent before."""

    entries: tuple[Entry, ...]
    commit_index: LogIndex


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The voter lives, and whom it takes for the leader; with an error it is its last word."""

    commit_index: LogIndex
    leader: NodeId | None
    term: Term
    error: TidelogError | None = None
    members: Members | None = None
    """In the first one and when they changed: where voters are reached."""


VoterMessage = SnapshotPiece | CommittedEntries | Heartbeat

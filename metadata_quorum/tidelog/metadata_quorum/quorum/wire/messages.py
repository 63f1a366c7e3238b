"""The quorum's messages between protobuf and Raft's Structs, both ways.

Owns the check of each entry's checksum where entries enter this node. A message that cannot be what
its sender meant raises INVALID_ARGUMENT, one for another node WRONG_CLUSTER; nothing of it is used.
"""

import struct
from typing import Final

from tidelog.contract.errors import raise_malformed
from tidelog.metadata_quorum.quorum.wire.numbers import parse
from tidelog.metadata_quorum.quorum.wire.route import Identity, Sender, fill_route, read_route
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, MemberId, NodeId, SnapshotId
from tidelog.v1 import quorum_pb2
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

ENTRY_BYTES_MAX: Final = 8 * 1024 * 1024
"""What a receiver takes; a leader's own limit is lower (`Options.entry_bytes_max`)."""

_CHECKED: Final = struct.Struct("<QQB")
_NUMBERS: Final = {
    EntryKind.COMMAND: quorum_pb2.QUORUM_ENTRY_KIND_COMMAND,
    EntryKind.MEMBERS: quorum_pb2.QUORUM_ENTRY_KIND_MEMBERS,
    EntryKind.EMPTY: quorum_pb2.QUORUM_ENTRY_KIND_EMPTY,
}
_KINDS: Final[dict[int, EntryKind]] = {number: kind for kind, number in _NUMBERS.items()}


def entry_checksum(entry: Entry) -> int:
    """Over index, term, kind and data."""
    head = _CHECKED.pack(entry.index, entry.term, _NUMBERS[entry.kind])
    return checksum(head + entry.data)


# -- AppendEntries -------------------------------------------------------------------------------


def encode_append_request(
    here: Identity, request: AppendRequest, leader_address: str = ""
) -> bytes:
    """What a leader sends; with a snapshot also where it is to be fetched."""
    message = quorum_pb2.AppendEntriesRequest(
        term=request.term,
        previous_index=request.previous_index,
        previous_term=request.previous_term,
        commit_index=request.commit_index,
        round=request.round,
        matched_index=request.matched_index,
        matched_term=request.matched_term,
    )
    fill_route(message.route, here, request.receiver)
    for entry in request.entries:
        message.entries.add(
            term=entry.term,
            kind=_NUMBERS[entry.kind],
            data=entry.data,
            checksum=entry_checksum(entry),
        )
    if request.snapshot is not None:
        message.snapshot.end_index = request.snapshot.end_index
        message.snapshot.term = request.snapshot.term
        message.snapshot_bytes = request.snapshot_bytes
        message.leader_address = leader_address
    return message.SerializeToString()


def read_leader_address(data: bytes) -> str:
    """Of an offer that was decoded already; empty: it does not say."""
    address: str = quorum_pb2.AppendEntriesRequest.FromString(data).leader_address
    return address


def decode_append_request(here: Identity, data: bytes) -> AppendRequest:
    """What a member receives."""
    name = "AppendEntriesRequest"
    message = parse(quorum_pb2.AppendEntriesRequest, data)
    sender = _member(read_route(message.route, here, name), name)
    entries = _read_entries(message, name)
    snapshot = None
    if message.HasField("snapshot"):
        snapshot = _read_snapshot_id(message.snapshot, name)
    return AppendRequest(
        sender=sender,
        receiver=here.member_id,
        term=Term(message.term),
        previous_index=LogIndex(message.previous_index),
        previous_term=Term(message.previous_term),
        entries=entries,
        commit_index=LogIndex(message.commit_index),
        round=message.round,
        snapshot=snapshot,
        snapshot_bytes=message.snapshot_bytes,
        matched_index=LogIndex(message.matched_index),
        matched_term=Term(message.matched_term),
    )


def _read_entries(message: quorum_pb2.AppendEntriesRequest, name: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    index = message.previous_index
    term = message.previous_term
    for each in message.entries:
        index += 1
        kind = _KINDS.get(each.kind)
        if kind is None:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=f"read a {name}",
                happened=f"entry {index} is of kind {each.kind}, which this release does not know",
                hint="Upgrade this node: the quorum's leader is of a later release.",
            )
        entry = Entry(index=LogIndex(index), term=Term(each.term), kind=kind, data=each.data)
        if len(entry.data) > ENTRY_BYTES_MAX:
            raise_malformed(name, f"entry {index} has {len(entry.data)} bytes")
        if not term <= entry.term <= message.term:
            raise_malformed(name, f"entry {index} has term {entry.term} after {term}")
        if each.checksum != entry_checksum(entry):
            raise_malformed(name, f"the checksum of entry {index} does not fit")
        term = entry.term
        entries.append(entry)
    return tuple(entries)


def encode_append_response(here: Identity, response: AppendResponse) -> bytes:
    """What a member answers."""
    message = quorum_pb2.AppendEntriesResponse(
        term=response.term,
        is_success=response.is_success,
        match_index=response.match_index,
        hint_index=response.hint_index,
        hint_term=response.hint_term,
        round=response.round,
        repair_from_index=response.repair_from_index,
        snapshot_position=response.snapshot_position,
    )
    fill_route(message.route, here, response.receiver)
    return message.SerializeToString()


def decode_append_response(here: Identity, data: bytes) -> AppendResponse:
    """What a leader receives."""
    name = "AppendEntriesResponse"
    message = parse(quorum_pb2.AppendEntriesResponse, data)
    return AppendResponse(
        sender=_member(read_route(message.route, here, name), name),
        receiver=here.member_id,
        term=Term(message.term),
        is_success=message.is_success,
        match_index=LogIndex(message.match_index),
        hint_index=LogIndex(message.hint_index),
        hint_term=Term(message.hint_term),
        round=message.round,
        repair_from_index=LogIndex(message.repair_from_index),
        snapshot_position=message.snapshot_position,
    )


# -- RequestVote, TimeoutNow -----------------------------------------------------------------------


def encode_vote_request(here: Identity, request: VoteRequest) -> bytes:
    """What a candidate sends."""
    message = quorum_pb2.RequestVoteRequest(
        term=request.term,
        last_index=request.last_index,
        last_term=request.last_term,
        is_pre_vote=request.is_pre_vote,
        is_leadership_transfer=request.is_leadership_transfer,
    )
    fill_route(message.route, here, request.receiver)
    return message.SerializeToString()


def decode_vote_request(here: Identity, data: bytes) -> VoteRequest:
    """What a voter is asked."""
    name = "RequestVoteRequest"
    message = parse(quorum_pb2.RequestVoteRequest, data)
    if message.last_term > message.term:
        raise_malformed(name, f"its last entry has term {message.last_term} of {message.term}")
    return VoteRequest(
        sender=_member(read_route(message.route, here, name), name),
        receiver=here.member_id,
        term=Term(message.term),
        last_index=LogIndex(message.last_index),
        last_term=Term(message.last_term),
        is_pre_vote=message.is_pre_vote,
        is_leadership_transfer=message.is_leadership_transfer,
    )


def encode_vote_response(here: Identity, response: VoteResponse, leader_id: int) -> bytes:
    """What a voter answers."""
    message = quorum_pb2.RequestVoteResponse(
        term=response.term,
        is_granted=response.is_granted,
        is_pre_vote=response.is_pre_vote,
        leader_id=leader_id,
    )
    fill_route(message.route, here, response.receiver)
    return message.SerializeToString()


def decode_vote_response(here: Identity, data: bytes) -> VoteResponse:
    """What a candidate receives."""
    name = "RequestVoteResponse"
    message = parse(quorum_pb2.RequestVoteResponse, data)
    return VoteResponse(
        sender=_member(read_route(message.route, here, name), name),
        receiver=here.member_id,
        term=Term(message.term),
        is_granted=message.is_granted,
        is_pre_vote=message.is_pre_vote,
    )


def read_vote_leader(data: bytes) -> int:
    """Which node a voter says leads; -1: it knows of none."""
    return parse(quorum_pb2.RequestVoteResponse, data).leader_id


def encode_timeout_now(here: Identity, request: TimeoutNow) -> bytes:
    """What a leader sends that hands over."""
    message = quorum_pb2.TimeoutNowRequest(term=request.term)
    fill_route(message.route, here, request.receiver)
    return message.SerializeToString()


def decode_timeout_now(here: Identity, data: bytes) -> TimeoutNow:
    """What the next leader receives."""
    name = "TimeoutNowRequest"
    message = parse(quorum_pb2.TimeoutNowRequest, data)
    return TimeoutNow(
        sender=_member(read_route(message.route, here, name), name),
        receiver=here.member_id,
        term=Term(message.term),
    )


def encode_timeout_now_response(here: Identity, receiver: MemberId, term: Term) -> bytes:
    """That the request has arrived."""
    message = quorum_pb2.TimeoutNowResponse(term=term)
    fill_route(message.route, here, receiver)
    return message.SerializeToString()


# -- ReadIndex -------------------------------------------------------------------------------------


def encode_read_index_request(here: Identity, request: ReadIndexRequest) -> bytes:
    """What a member asks its leader."""
    message = quorum_pb2.ReadIndexRequest(term=request.term)
    fill_route(message.route, here, request.receiver)
    return message.SerializeToString()


def decode_read_index_request(here: Identity, data: bytes) -> tuple[Sender, Term]:
    """Who asks; an observer may."""
    name = "ReadIndexRequest"
    message = parse(quorum_pb2.ReadIndexRequest, data)
    return read_route(message.route, here, name), Term(message.term)


def decode_read_index_response(
    here: Identity, data: bytes, request: ReadIndexRequest
) -> ReadIndexResponse:
    """What the leader answered to this request; refused: index 0."""
    name = "ReadIndexResponse"
    message = parse(quorum_pb2.ReadIndexResponse, data)
    return ReadIndexResponse(
        sender=_member(read_route(message.route, here, name), name),
        receiver=here.member_id,
        term=Term(message.term),
        read_id=request.read_id,
        index=LogIndex(0 if message.HasField("error") else message.index),
    )


# -- parts -----------------------------------------------------------------------------------------


def _member(sender: Sender, name: str) -> MemberId:
    if sender.is_observer:
        raise_malformed(name, "its sender has no directory uuid")
    return MemberId(NodeId(sender.node_id), sender.directory_uuid)


def _read_snapshot_id(message: quorum_pb2.QuorumSnapshotId, name: str) -> SnapshotId:
    if message.end_index < 1:
        raise_malformed(name, f"a snapshot does not end at {message.end_index}")
    return SnapshotId(end_index=LogIndex(message.end_index), term=Term(message.term))

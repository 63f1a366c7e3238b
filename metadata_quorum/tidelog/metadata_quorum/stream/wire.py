"""MetadataStreamService: conversions between protobuf and the stream's Structs.

Owns the check of each entry's checksum where entries enter this node. A message that cannot be
what its sender meant raises STORAGE_CORRUPT or INVALID_ARGUMENT; nothing of it is used.
"""

import struct
from typing import Final

from google.protobuf.message import DecodeError

from tidelog.contract.errors import fill_error, read_error
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    Member,
    MemberId,
    Members,
    NodeId,
    SnapshotId,
)
from tidelog.metadata_quorum.stream.messages import (
    CommittedEntries,
    Heartbeat,
    ObserveBegin,
    ObserveProgress,
    ObserverMessage,
    SnapshotPiece,
    VoterMessage,
)
from tidelog.v1 import metadata_stream_pb2, quorum_pb2
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

NO_LEADER: Final = -1
_CHECKED: Final = struct.Struct("<QQB")
_NUMBERS: Final = {
    EntryKind.COMMAND: quorum_pb2.QUORUM_ENTRY_KIND_COMMAND,
    EntryKind.MEMBERS: quorum_pb2.QUORUM_ENTRY_KIND_MEMBERS,
    EntryKind.EMPTY: quorum_pb2.QUORUM_ENTRY_KIND_EMPTY,
}
_KINDS: Final[dict[int, EntryKind]] = {number: kind for kind, number in _NUMBERS.items()}


def encode_observer_message(message: ObserverMessage) -> bytes:
    """What an observer sends."""
    if isinstance(message, ObserveBegin):
        begin = metadata_stream_pb2.ObserveBegin(
            cluster_id=message.cluster_id,
            node_id=message.node_id,
            next_index=message.next_index,
            last_applied_term=message.last_applied_term,
            credit_bytes=message.credit_bytes,
        )
        return metadata_stream_pb2.ObserveMetadataRequest(begin=begin).SerializeToString()
    progress = metadata_stream_pb2.ObserveProgress(
        applied_index=message.applied_index, credit_bytes=message.credit_bytes
    )
    return metadata_stream_pb2.ObserveMetadataRequest(progress=progress).SerializeToString()


def decode_observer_message(data: bytes) -> ObserverMessage:
    """What a voter receives."""
    message = metadata_stream_pb2.ObserveMetadataRequest.FromString(data)
    match message.WhichOneof("request"):
        case "begin":
            begin = message.begin
            if begin.next_index < 1:
                raise _invalid("next_index is 0, the first entry is 1")
            return ObserveBegin(
                cluster_id=begin.cluster_id,
                node_id=NodeId(begin.node_id),
                next_index=LogIndex(begin.next_index),
                last_applied_term=Term(begin.last_applied_term),
                credit_bytes=begin.credit_bytes,
            )
        case "progress":
            return ObserveProgress(
                applied_index=LogIndex(message.progress.applied_index),
                credit_bytes=message.progress.credit_bytes,
            )
        case _:
            raise _invalid("neither begin nor progress is set")


def encode_voter_message(message: VoterMessage) -> bytes:
    """What a voter sends."""
    response = metadata_stream_pb2.ObserveMetadataResponse()
    if isinstance(message, SnapshotPiece):
        response.snapshot.end_index = message.id.end_index
        response.snapshot.term = message.id.term
        response.snapshot.position = message.position
        response.snapshot.data = message.data
        response.snapshot.total_bytes = message.total_bytes
    elif isinstance(message, CommittedEntries):
        response.entries.first_index = message.entries[0].index
        response.entries.commit_index = message.commit_index
        for entry in message.entries:
            response.entries.entries.add(
                term=entry.term,
                kind=_NUMBERS[entry.kind],
                data=entry.data,
                checksum=entry_checksum(entry),
            )
    else:
        response.heartbeat.commit_index = message.commit_index
        response.heartbeat.leader_id = NO_LEADER if message.leader is None else message.leader
        response.heartbeat.term = message.term
        if message.error is not None:
            fill_error(response.heartbeat.error, message.error)
        if message.members is not None:
            _fill_members(response.heartbeat.members, message.members)
    return response.SerializeToString()


def decode_voter_message(data: bytes) -> VoterMessage:
    """What an observer receives; every entry's checksum is right."""
    try:
        message = metadata_stream_pb2.ObserveMetadataResponse.FromString(data)
    except DecodeError as error:
        raise _invalid(f"the voter sent what does not fit the contract: {error}") from None
    match message.WhichOneof("response"):
        case "snapshot":
            piece = message.snapshot
            return SnapshotPiece(
                id=SnapshotId(LogIndex(piece.end_index), Term(piece.term)),
                position=piece.position,
                data=piece.data,
                total_bytes=piece.total_bytes,
            )
        case "entries":
            first = message.entries.first_index
            if not first or not message.entries.entries:
                raise _invalid("entries are announced, and none came")
            return CommittedEntries(
                entries=tuple(
                    _decode_entry(each, LogIndex(first + place))
                    for place, each in enumerate(message.entries.entries)
                ),
                commit_index=LogIndex(message.entries.commit_index),
            )
        case "heartbeat":
            beat = message.heartbeat
            return Heartbeat(
                commit_index=LogIndex(beat.commit_index),
                leader=None if beat.leader_id == NO_LEADER else NodeId(beat.leader_id),
                term=Term(beat.term),
                error=read_error(beat.error) if beat.HasField("error") else None,
                members=_read_members(beat.members) if beat.HasField("members") else None,
            )
        case _:
            raise _invalid("no response that this release knows is set")


def entry_checksum(entry: Entry) -> int:
    """As the contract defines it for `QuorumEntry.checksum`."""
    return checksum(_CHECKED.pack(entry.index, entry.term, _NUMBERS[entry.kind]) + entry.data)


def _decode_entry(message: quorum_pb2.QuorumEntry, index: LogIndex) -> Entry:
    kind = _KINDS.get(message.kind)
    if kind is None:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=f"read entry {index} of the metadata stream",
            happened=f"it is of kind {message.kind}, which this release does not know",
            hint="Upgrade this node.",
        )
    entry = Entry(index=index, term=Term(message.term), kind=kind, data=message.data)
    if entry_checksum(entry) != message.checksum:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried=f"read entry {index} of the metadata stream",
            happened="its checksum does not agree",
        )
    return entry


def _fill_members(message: quorum_pb2.QuorumMembers, members: Members) -> None:
    message.SetInParent()
    for member in members:
        message.members.add(
            node_id=member.id.node_id,
            directory_uuid=member.id.directory_uuid,
            address=member.address,
            is_learner=member.is_learner,
        )


def _read_members(message: quorum_pb2.QuorumMembers) -> Members:
    return Members(
        tuple(
            Member(
                id=MemberId(NodeId(each.node_id), each.directory_uuid),
                address=each.address,
                is_learner=each.is_learner,
            )
            for each in message.members
        )
    )


def _invalid(happened: str) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_ARGUMENT, tried="read the metadata stream", happened=happened
    )

"""FetchSnapshot, JoinQuorum and an observer's ReadIndex between protobuf and Structs, both ways.

What a member asks of another outside the core's messages. Malformed: INVALID_ARGUMENT; meant for
another node: WRONG_CLUSTER.
"""

import msgspec

from tidelog.contract.errors import fill_error, raise_malformed, read_error
from tidelog.metadata_quorum.quorum.wire.numbers import parse
from tidelog.metadata_quorum.quorum.wire.route import (
    ANY_NODE,
    NO_LEADER,
    UUID_BYTES,
    Identity,
    Sender,
    fill_route,
    read_route,
)
from tidelog.metadata_quorum.raft.types import Member, MemberId, NodeId, SnapshotId
from tidelog.v1 import quorum_pb2
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex, Term

ADDRESS_CHARACTERS_MAX = 300


class PieceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which piece of a snapshot is wanted."""

    id: SnapshotId
    position: int
    bytes_max: int


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a snapshot."""

    id: SnapshotId
    position: int
    data: bytes
    total_bytes: int
    is_gone: bool = False


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a node becomes a learner, and who leads."""

    answered_by: MemberId
    error: TidelogError | None
    leader_id: int
    leader_address: str


def encode_piece_request(
    here: Identity, receiver: MemberId, snapshot_id: SnapshotId, position: int, bytes_max: int
) -> bytes:
    """Ask for a piece; of the snapshot 0 there is none, so that asking is only a sign of life."""
    message = quorum_pb2.FetchSnapshotRequest(position=position, max_bytes=bytes_max)
    message.snapshot.end_index = snapshot_id.end_index
    message.snapshot.term = snapshot_id.term
    fill_route(message.route, here, receiver)
    return message.SerializeToString()


def decode_piece_request(here: Identity, data: bytes) -> tuple[Sender, PieceRequest]:
    """What is wanted."""
    name = "FetchSnapshotRequest"
    message = parse(quorum_pb2.FetchSnapshotRequest, data)
    sender = read_route(message.route, here, name)
    request = PieceRequest(
        id=SnapshotId(
            end_index=LogIndex(message.snapshot.end_index), term=Term(message.snapshot.term)
        ),
        position=message.position,
        bytes_max=message.max_bytes,
    )
    return sender, request


def encode_piece(here: Identity, receiver: Sender, piece: Piece) -> bytes:
    """The answer."""
    message = quorum_pb2.FetchSnapshotResponse(
        position=piece.position,
        data=piece.data,
        total_bytes=piece.total_bytes,
        is_gone=piece.is_gone,
    )
    message.snapshot.end_index = piece.id.end_index
    message.snapshot.term = piece.id.term
    _fill_back(message.route, here, receiver)
    return message.SerializeToString()


def decode_piece(here: Identity, data: bytes, request: PieceRequest) -> Piece:
    """The answer to this request."""
    name = "FetchSnapshotResponse"
    message = parse(quorum_pb2.FetchSnapshotResponse, data)
    read_route(message.route, here, name)
    snapshot_id = SnapshotId(
        end_index=LogIndex(message.snapshot.end_index), term=Term(message.snapshot.term)
    )
    piece = Piece(
        id=snapshot_id,
        position=message.position,
        data=message.data,
        total_bytes=message.total_bytes,
        is_gone=message.is_gone,
    )
    if piece.is_gone:
        return piece
    if (piece.id, piece.position) != (request.id, request.position):
        raise_malformed(name, "it answers another request")
    if not piece.data or piece.position + len(piece.data) > piece.total_bytes:
        raise_malformed(
            name,
            f"{len(piece.data)} bytes from {piece.position} of {piece.total_bytes} make no sense",
        )
    return piece


def encode_join_request(here: Identity, address: str) -> bytes:
    """Ask whoever listens to let this node in."""
    message = quorum_pb2.JoinQuorumRequest()
    message.member.node_id = here.member_id.node_id
    message.member.directory_uuid = here.member_id.directory_uuid
    message.member.address = address
    fill_route(message.route, here, None)
    return message.SerializeToString()


def decode_join_request(here: Identity, data: bytes) -> tuple[Sender, Member]:
    """Who asks."""
    name = "JoinQuorumRequest"
    message = parse(quorum_pb2.JoinQuorumRequest, data)
    sender = read_route(message.route, here, name)
    member = message.member
    if len(member.directory_uuid) != UUID_BYTES or member.node_id < 0:
        raise_malformed(name, "the member's node id or directory uuid cannot be one")
    if (member.node_id, member.directory_uuid) != (sender.node_id, sender.directory_uuid):
        raise_malformed(name, "it asks for another member than its sender")
    host, _, port = member.address.rpartition(":")
    if not host or not port.isdecimal() or len(member.address) > ADDRESS_CHARACTERS_MAX:
        raise_malformed(name, f"{member.address[:80]!r} is no address `host:port`")
    member_id = MemberId(NodeId(member.node_id), member.directory_uuid)
    return sender, Member(id=member_id, address=member.address, is_learner=True)


def encode_join_response(
    here: Identity, receiver: Sender, error: TidelogError | None, leader: Member | None
) -> bytes:
    """The answer."""
    message = quorum_pb2.JoinQuorumResponse(
        leader_id=NO_LEADER if leader is None else leader.id.node_id,
        leader_address="" if leader is None else leader.address,
    )
    if error is not None:
        fill_error(message.error, error)
    _fill_back(message.route, here, receiver)
    return message.SerializeToString()


def decode_join_response(here: Identity, data: bytes) -> JoinAnswer:
    """What the asking node learns."""
    name = "JoinQuorumResponse"
    message = parse(quorum_pb2.JoinQuorumResponse, data)
    sender = read_route(message.route, here, name)
    if sender.is_observer:
        raise_malformed(name, "its sender has no directory uuid")
    return JoinAnswer(
        answered_by=sender.member_id,
        error=read_error(message.error) if message.HasField("error") else None,
        leader_id=message.leader_id,
        leader_address=message.leader_address,
    )


def encode_observers_read(cluster_id: str, node_id: int) -> bytes:
    """What a node asks that need not be a member: it has no directory, and no term."""
    message = quorum_pb2.ReadIndexRequest()
    message.route.cluster_id = cluster_id
    message.route.from_node_id = node_id
    message.route.to_node_id = ANY_NODE
    return message.SerializeToString()


def decode_observers_read(data: bytes) -> LogIndex:
    """The index, or what the answer was refused with."""
    message = parse(quorum_pb2.ReadIndexResponse, data)
    if message.HasField("error"):
        raise read_error(message.error)
    return LogIndex(message.index)


def encode_read_index_answer(
    here: Identity,
    receiver: Sender,
    outcome: LogIndex | TidelogError,
    *,
    leader_id: int,
    term: Term,
) -> bytes:
    """What ReadIndex answers to members and observers."""
    message = quorum_pb2.ReadIndexResponse(leader_id=leader_id, term=term)
    if isinstance(outcome, TidelogError):
        fill_error(message.error, outcome)
    else:
        message.index = outcome
    _fill_back(message.route, here, receiver)
    return message.SerializeToString()


def _fill_back(route: quorum_pb2.QuorumRoute, here: Identity, receiver: Sender) -> None:
    route.cluster_id = here.cluster_id
    route.from_node_id = here.member_id.node_id
    route.from_directory_uuid = here.member_id.directory_uuid
    route.to_node_id = receiver.node_id
    route.to_directory_uuid = receiver.directory_uuid

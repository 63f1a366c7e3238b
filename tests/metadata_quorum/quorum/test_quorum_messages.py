"""The quorum's messages: both ways without loss, and nothing malformed gets in."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.metadata_quorum.quorum.quorum_world import member_id
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.peer_link import follows
from tidelog.metadata_quorum.quorum.wire import joining as quorum_joining
from tidelog.metadata_quorum.quorum.wire import messages as quorum_convert
from tidelog.metadata_quorum.quorum.wire.route import Identity
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    ReadIndexRequest,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog.metadata_quorum.raft.types import Entry, EntryKind, SnapshotId
from tidelog.v1 import quorum_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

A = Identity(cluster_id="c", member_id=member_id(1))
B = Identity(cluster_id="c", member_id=member_id(2))


def entry(index: int, term: int, data: bytes = b"data") -> Entry:
    return Entry(index=LogIndex(index), term=Term(term), kind=EntryKind.COMMAND, data=data)


def append(*entries: Entry, previous: int = 6, term: int = 3) -> AppendRequest:
    return AppendRequest(
        sender=A.member_id,
        receiver=B.member_id,
        term=Term(term),
        previous_index=LogIndex(previous),
        previous_term=Term(2),
        entries=entries,
        commit_index=LogIndex(5),
        round=9,
    )


def test_an_append_request_comes_through_whole() -> None:
    request = append(
        entry(7, 2),
        Entry(index=LogIndex(8), term=Term(3), kind=EntryKind.EMPTY),
        Entry(index=LogIndex(9), term=Term(3), kind=EntryKind.MEMBERS, data=b"members"),
    )
    data = quorum_convert.encode_append_request(A, request)
    assert quorum_convert.decode_append_request(B, data) == request


def test_the_offer_of_a_snapshot_comes_through_whole() -> None:
    request = AppendRequest(
        sender=A.member_id,
        receiver=B.member_id,
        term=Term(3),
        previous_index=LogIndex(6),
        previous_term=Term(2),
        entries=(),
        commit_index=LogIndex(5),
        round=9,
        snapshot=SnapshotId(end_index=LogIndex(5), term=Term(2)),
        snapshot_bytes=1_000,
    )
    data = quorum_convert.encode_append_request(A, request)
    assert quorum_convert.decode_append_request(B, data) == request


def test_answers_and_votes_come_through_whole() -> None:
    response = AppendResponse(
        sender=B.member_id,
        receiver=A.member_id,
        term=Term(3),
        is_success=False,
        match_index=LogIndex(0),
        hint_index=LogIndex(4),
        hint_term=Term(2),
        round=9,
        repair_from_index=LogIndex(3),
        snapshot_position=77,
    )
    data = quorum_convert.encode_append_response(B, response)
    assert quorum_convert.decode_append_response(A, data) == response
    asked = VoteRequest(
        sender=A.member_id,
        receiver=B.member_id,
        term=Term(4),
        last_index=LogIndex(9),
        last_term=Term(3),
        is_pre_vote=True,
        is_leadership_transfer=True,
    )
    data = quorum_convert.encode_vote_request(A, asked)
    assert quorum_convert.decode_vote_request(B, data) == asked
    given = VoteResponse(
        sender=B.member_id,
        receiver=A.member_id,
        term=Term(4),
        is_granted=True,
        is_pre_vote=True,
    )
    data = quorum_convert.encode_vote_response(B, given, leader_id=-1)
    assert quorum_convert.decode_vote_response(A, data) == given
    now = TimeoutNow(sender=A.member_id, receiver=B.member_id, term=Term(4))
    data = quorum_convert.encode_timeout_now(A, now)
    assert quorum_convert.decode_timeout_now(B, data) == now


def _code_of_append(message: quorum_pb2.AppendEntriesRequest) -> ErrorCode:
    with pytest.raises(TidelogError) as caught:
        quorum_convert.decode_append_request(B, message.SerializeToString())
    assert caught.value.hint
    return caught.value.code


@pytest.fixture
def message() -> quorum_pb2.AppendEntriesRequest:
    data = quorum_convert.encode_append_request(A, append(entry(7, 2), entry(8, 3)))
    return quorum_pb2.AppendEntriesRequest.FromString(data)


@pytest.mark.parametrize("change", ["data", "term", "place", "checksum"])
def test_an_entry_that_was_changed_on_its_way_is_refused(
    message: quorum_pb2.AppendEntriesRequest, change: str
) -> None:
    match change:
        case "data":
            message.entries[0].data = b"dat!"
        case "term":
            message.entries[0].term = 3
        case "place":
            message.previous_index = 7
        case _:
            message.entries[1].checksum ^= 1
    assert _code_of_append(message) is ErrorCode.INVALID_ARGUMENT


def test_terms_that_fall_or_exceed_the_leaders_are_refused(
    message: quorum_pb2.AppendEntriesRequest,
) -> None:
    falling = quorum_convert.encode_append_request(A, append(entry(7, 3), entry(8, 2)))
    above = quorum_convert.encode_append_request(A, append(entry(7, 4)))
    for data in (falling, above):
        with pytest.raises(TidelogError) as caught:
            quorum_convert.decode_append_request(B, data)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_an_unknown_kind_of_entry_says_that_this_node_is_too_old(
    message: quorum_pb2.AppendEntriesRequest,
) -> None:
    message.entries[0].kind = quorum_pb2.QUORUM_ENTRY_KIND_UNSPECIFIED
    assert _code_of_append(message) is ErrorCode.UNSUPPORTED_VERSION


def test_routes_to_others_and_senders_that_cannot_be_are_refused(
    message: quorum_pb2.AppendEntriesRequest,
) -> None:
    changed = quorum_pb2.AppendEntriesRequest.FromString(message.SerializeToString())
    changed.route.cluster_id = "another"
    assert _code_of_append(changed) is ErrorCode.WRONG_CLUSTER
    changed.CopyFrom(message)
    changed.route.to_node_id = 3
    assert _code_of_append(changed) is ErrorCode.WRONG_CLUSTER
    changed.CopyFrom(message)
    changed.route.to_directory_uuid = member_id(2, life=2).directory_uuid
    assert _code_of_append(changed) is ErrorCode.WRONG_CLUSTER
    changed.CopyFrom(message)
    changed.route.from_directory_uuid = b"short"
    assert _code_of_append(changed) is ErrorCode.INVALID_ARGUMENT
    changed.CopyFrom(message)
    changed.route.from_directory_uuid = b""
    assert _code_of_append(changed) is ErrorCode.INVALID_ARGUMENT


def test_bytes_that_are_no_message_are_refused() -> None:
    for decode in (
        quorum_convert.decode_append_request,
        quorum_convert.decode_vote_request,
        quorum_convert.decode_timeout_now,
        quorum_joining.decode_join_request,
        quorum_joining.decode_piece_request,
    ):
        with pytest.raises(TidelogError) as caught:
            decode(B, b"\xff\xff\xff")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def _wide_fields(kind: Any, above: str = "") -> list[str]:
    """Every 64-bit number of a message, by path; those of its lists as well."""
    paths = []
    for field in kind.fields:
        if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_INT64):
            paths.append(f"{above}{field.name}")
        elif field.message_type is not None:
            paths += _wide_fields(field.message_type, f"{above}{field.name}.")
    return paths


READ_INDEX = ReadIndexRequest(sender=A.member_id, receiver=B.member_id, term=Term(1), read_id=1)
PIECE = quorum_joining.PieceRequest(
    id=SnapshotId(end_index=LogIndex(5), term=Term(2)), position=0, bytes_max=1
)
DECODERS: dict[type[Message], Callable[[bytes], object]] = {
    quorum_pb2.AppendEntriesRequest: lambda data: quorum_convert.decode_append_request(B, data),
    quorum_pb2.AppendEntriesResponse: lambda data: quorum_convert.decode_append_response(B, data),
    quorum_pb2.RequestVoteRequest: lambda data: quorum_convert.decode_vote_request(B, data),
    quorum_pb2.RequestVoteResponse: lambda data: quorum_convert.decode_vote_response(B, data),
    quorum_pb2.TimeoutNowRequest: lambda data: quorum_convert.decode_timeout_now(B, data),
    quorum_pb2.ReadIndexRequest: lambda data: quorum_convert.decode_read_index_request(B, data),
    quorum_pb2.ReadIndexResponse: lambda data: quorum_convert.decode_read_index_response(
        B, data, READ_INDEX
    ),
    quorum_pb2.FetchSnapshotRequest: lambda data: quorum_joining.decode_piece_request(B, data),
    quorum_pb2.FetchSnapshotResponse: lambda data: quorum_joining.decode_piece(B, data, PIECE),
}
WIDE = [(kind, path) for kind in DECODERS for path in _wide_fields(kind.DESCRIPTOR)]


def test_every_message_with_a_wide_number_is_tried() -> None:
    tried = {kind.DESCRIPTOR.name for kind in DECODERS} | {"TimeoutNowResponse"}
    contract = quorum_pb2.DESCRIPTOR.services_by_name["QuorumService"]
    for method in contract.methods:
        for kind in (method.input_type, method.output_type):
            assert kind.name in tried or not _wide_fields(kind), kind.name


@pytest.mark.parametrize("number", [NUMBER_MAX + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize(("kind", "path"), WIDE, ids=lambda each: getattr(each, "__name__", each))
def test_a_number_above_the_bound_is_refused_wherever_it_stands(
    kind: type[Message], path: str, number: int
) -> None:
    message = kind()
    route = message.route  # type: ignore[attr-defined]
    route.cluster_id = "c"
    route.from_node_id, route.to_node_id = 1, 2
    route.from_directory_uuid = A.member_id.directory_uuid
    part: Any = message
    *parts, name = path.split(".")
    for each in parts:
        found = getattr(part, each)
        part = found.add(kind=1) if hasattr(found, "add") else found
    setattr(part, name, number)
    with pytest.raises(TidelogError) as caught:
        DECODERS[kind](message.SerializeToString())
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_numbers_at_the_bound_pass_and_fit_again_with_room_to_add() -> None:
    request = msgspec.structs.replace(append(term=NUMBER_MAX), round=NUMBER_MAX)
    data = quorum_convert.encode_append_request(A, request)
    assert quorum_convert.decode_append_request(B, data) == request
    later = msgspec.structs.replace(request, term=Term(NUMBER_MAX + 1), round=NUMBER_MAX + 1)
    assert quorum_convert.encode_append_request(A, later)


@pytest.mark.parametrize("address", ["", "nowhere", "host:", ":9", "host:port", "h" * 400 + ":1"])
def test_a_node_that_gives_no_address_does_not_join(address: str) -> None:
    data = quorum_joining.encode_join_request(A, address)
    with pytest.raises(TidelogError) as caught:
        quorum_joining.decode_join_request(B, data)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_only_appends_that_follow_each_other_are_joined() -> None:
    first = append(entry(7, 2))
    assert follows(first, append(entry(8, 3), previous=7))
    assert not follows(first, append(entry(9, 3), previous=8))
    assert not follows(first, append(previous=7))
    assert not follows(first, append(entry(8, 3), previous=7, term=4))
    assert QuorumLimits().append_bytes_max < 16 * 1024 * 1024

"""A snapshot's file as bytes, the same on every member. Pure.

head: magic, end index, term, count of pieces, length of members, sum | members, sum
each piece: length, sum | data
foot: magic, size of the whole file, sum over the sums of the pieces, sum
"""

import struct
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import Members, SnapshotId
from tidelog.metadata_quorum.storage.errors import corrupt
from tidelog.wire.batch import checksum
from tidelog.wire.ids import LogIndex, Term

_HEAD: Final = struct.Struct("<4sQQII")
_PIECE: Final = struct.Struct("<II")
_FOOT: Final = struct.Struct("<4sQI")
_SUM: Final = struct.Struct("<I")
_HEAD_MAGIC: Final = b"TQS1"
_FOOT_MAGIC: Final = b"TQSE"
_MEMBERS: Final = msgspec.msgpack.Decoder(Members)


class SnapshotContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot's file holds."""

    id: SnapshotId
    members: Members
    state: tuple[bytes, ...]


def encode_snapshot(content: SnapshotContent) -> list[bytes]:
    """The pieces to write."""
    members = msgspec.msgpack.encode(content.members)
    identity = content.id
    pieces = [
        _summed(
            _HEAD.pack(
                _HEAD_MAGIC,
                identity.end_index,
                identity.term,
                len(content.state),
                len(members),
            )
        ),
        _summed(members),
    ]
    sums = []
    for data in content.state:
        sums.append(_SUM.pack(_piece_sum(data)))
        pieces += [_PIECE.pack(len(data), _piece_sum(data)), data]
    size_bytes = sum(len(piece) for piece in pieces) + _FOOT.size + _SUM.size
    pieces.append(_summed(_FOOT.pack(_FOOT_MAGIC, size_bytes, checksum(b"".join(sums)))))
    return pieces


def decode_snapshot(data: bytes, where: str) -> SnapshotContent:
    """STORAGE_CORRUPT, naming the byte, unless every sum is right and not a byte is left over."""
    magic, end_index, term, count, members_bytes = _HEAD.unpack(
        _checked(data, 0, _HEAD.size, where)
    )
    if magic != _HEAD_MAGIC:
        raise corrupt(where, "damage at byte 0: it is not a snapshot")
    position = _HEAD.size + _SUM.size
    members = _checked(data, position, members_bytes, where)
    position += members_bytes + _SUM.size
    state: list[bytes] = []
    sums: list[bytes] = []
    for _ in range(count):
        if position + _PIECE.size > len(data):
            raise corrupt(where, f"it ends at byte {len(data)}, within a piece")
        length, stored = _PIECE.unpack_from(data, position)
        piece = data[position + _PIECE.size : position + _PIECE.size + length]
        if _piece_sum(piece) != stored:
            raise corrupt(where, f"damage at byte {position}: the piece contradicts its checksum")
        state.append(piece)
        sums.append(_SUM.pack(stored))
        position += _PIECE.size + length
    foot = _FOOT.unpack(_checked(data, position, _FOOT.size, where))
    if foot != (_FOOT_MAGIC, len(data), checksum(b"".join(sums))):
        raise corrupt(where, f"damage at byte {position}: the foot does not fit")
    try:
        decoded = _MEMBERS.decode(members)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt(where, f"the members do not decode: {error}") from None
    return SnapshotContent(
        id=SnapshotId(end_index=LogIndex(end_index), term=Term(term)),
        members=decoded,
        state=tuple(state),
    )


def _piece_sum(data: bytes) -> int:
    """Bound to the length, so that bytes cannot move from one piece to the next."""
    return checksum(_SUM.pack(len(data)) + data)


def _summed(body: bytes) -> bytes:
    return body + _SUM.pack(checksum(body))


def _checked(data: bytes, position: int, length: int, where: str) -> bytes:
    end = position + length
    if end + _SUM.size > len(data):
        raise corrupt(where, f"it ends at byte {len(data)}, before byte {end + _SUM.size}")
    body = data[position:end]
    if checksum(body) != _SUM.unpack_from(data, end)[0]:
        raise corrupt(where, f"damage at byte {position}: {length} bytes contradict their checksum")
    return body

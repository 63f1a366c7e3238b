"""The hard state as bytes, of a fixed size: part of each block and of each mark. Pure.

term u64 | voted u8, node i32, uuid 16 | repairs u8, from u64, last u64, last term u64
"""

import struct
from typing import Final

from tidelog.metadata_quorum.raft.types import HardState, MemberId, NodeId, Repair
from tidelog.wire.ids import LogIndex, Term

_STATE: Final = struct.Struct("<QBi16sBQQQ")
STATE_BYTES: Final = _STATE.size
_NO_UUID: Final = bytes(16)


def encode_state(state: HardState) -> bytes:
    """Always STATE_BYTES long."""
    vote, repair = state.voted_for, state.repair
    assert vote is None or len(vote.directory_uuid) == 16, "a directory uuid has 16 bytes"
    return _STATE.pack(
        state.term,
        vote is not None,
        vote.node_id if vote else 0,
        vote.directory_uuid if vote else _NO_UUID,
        repair is not None,
        repair.from_index if repair else 0,
        repair.last_index if repair else 0,
        repair.last_term if repair else 0,
    )


def decode_state(data: bytes) -> HardState:
    """Of bytes whose checksum was found right."""
    term, voted, node_id, uuid, repairs, from_index, last_index, last_term = _STATE.unpack(data)
    return HardState(
        term=Term(term),
        voted_for=MemberId(NodeId(node_id), uuid) if voted else None,
        repair=Repair(
            from_index=LogIndex(from_index),
            last_index=LogIndex(last_index),
            last_term=Term(last_term),
        )
        if repairs
        else None,
    )


def with_vote_of(state: HardState, other: HardState) -> HardState:
    """A later state may be known from a write of which the rest was lost. Its term and vote are
    taken over, which is safe whether or not it was acknowledged; its repair is not, because what
    ended the repair may be what was lost.
    """
    is_later = other.term > state.term or (other.term == state.term and state.voted_for is None)
    if not is_later:
        return state
    return HardState(term=other.term, voted_for=other.voted_for, repair=state.repair)

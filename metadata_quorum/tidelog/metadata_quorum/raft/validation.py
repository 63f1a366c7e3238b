"""Whether a message makes sense by itself, whoever sent it and whatever state its receiver is in.

Owns the line between what is a peer's fault (passed over) and what is a bug of ours (asserted).
"""

from tidelog.metadata_quorum.raft.membership import decode_members
from tidelog.metadata_quorum.raft.messages import (
    AppendRequest,
    AppendResponse,
    Message,
    VoteRequest,
)
from tidelog.metadata_quorum.raft.types import EntryKind, MemberId
from tidelog.wire.errors import TidelogError


def is_acceptable(message: Message, receiver: MemberId) -> bool:
    """Meant for this member, of another one, with numbers that can be."""
    if message.receiver != receiver or message.sender == receiver or message.term < 1:
        return False
    if isinstance(message, AppendRequest):
        return _is_append_sound(message)
    if isinstance(message, AppendResponse):
        numbers = (message.match_index, message.hint_index, message.hint_term, message.round)
        return min(numbers) >= 0 and message.repair_from_index >= 0
    if isinstance(message, VoteRequest):
        return 0 <= message.last_term <= message.term and message.last_index >= 0
    return True


def _is_append_sound(request: AppendRequest) -> bool:
    if request.previous_index < 0 or request.commit_index < 0 or request.round < 0:
        return False
    if request.snapshot is not None and (
        request.entries
        or request.snapshot.end_index != request.previous_index + 1
        or request.snapshot.term != request.previous_term
        or request.previous_index < 1
    ):
        return False
    if (request.matched_index == 0) != (request.matched_term == 0):
        return False
    if request.matched_index < 0 or not 0 <= request.matched_term <= request.term:
        return False
    index, term = request.previous_index, request.previous_term
    if (index == 0) != (term == 0):
        return False
    for entry in request.entries:
        if entry.index != index + 1 or entry.term < term:
            return False
        if entry.kind is EntryKind.MEMBERS and not _is_readable(entry.data):
            return False
        index, term = entry.index, entry.term
    return 0 <= term <= request.term


def _is_readable(data: bytes) -> bool:
    try:
        decode_members(data)
    except TidelogError:
        return False
    return True

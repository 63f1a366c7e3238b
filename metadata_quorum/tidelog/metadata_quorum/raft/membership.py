"""Who is a member, according to the log; and what a change of members makes of them.

Owns the history of MEMBERS entries since the log's start, so that a truncation brings back who was
a member before, and the persisted form of members.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.metadata_quorum.raft.types import Entry, EntryKind, Member, MemberId, Members, NodeId
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

MEMBERS_MAX: Final = 64
"""Voters and learners together."""
DIRECTORY_UUID_BYTES: Final = 16


class _StoredMember(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    directory_uuid: bytes
    address: str
    is_learner: bool = False


class _StoredMembers(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="raft_members"
):
    version: int = 1
    members: tuple[_StoredMember, ...] = ()


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_StoredMembers)


def encode_members(members: Members) -> bytes:
    """What a MEMBERS entry holds."""
    stored = tuple(
        _StoredMember(
            node_id=member.id.node_id,
            directory_uuid=member.id.directory_uuid,
            address=member.address,
            is_learner=member.is_learner,
        )
        for member in members
    )
    return _ENCODER.encode(_StoredMembers(members=stored))


def decode_members(data: bytes) -> Members:
    """The inverse; STORAGE_CORRUPT if the bytes are nothing of the kind."""
    try:
        stored = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried="read the members of the quorum from an entry of its log",
            happened=str(error),
        ) from error
    return sorted_members(
        Member(
            id=MemberId(NodeId(member.node_id), member.directory_uuid),
            address=member.address,
            is_learner=member.is_learner,
        )
        for member in stored.members
    )


def sorted_members(members: Iterable[Member]) -> Members:
    """In ascending order of id, as everybody expects them."""
    return Members(tuple(sorted(members, key=_id_of)))


def _id_of(member: Member) -> MemberId:
    return member.id


class Membership:
    """The members in force, and those that a truncation would bring back."""

    def __init__(self, base_index: LogIndex, base: Members) -> None:
        self._history: list[tuple[LogIndex, Members]] = [(base_index, base)]
        self._renew()

    def append(self, entries: Iterable[Entry]) -> None:
        """Members are in force as soon as their entry is in the log."""
        for entry in entries:
            if entry.kind is EntryKind.MEMBERS and entry.index > self.index:
                self._history.append((entry.index, decode_members(entry.data)))
                self._renew()

    def truncate_from(self, index: LogIndex) -> None:
        """Those of a dropped entry are not in force any more."""
        assert self._history[0][0] < index, f"the members of the base do not go with {index}"
        while self._history[-1][0] >= index:
            self._history.pop()
        self._renew()

    def trim(self, base_index: LogIndex) -> None:
        """Nothing up to here is truncated any more."""
        while len(self._history) > 1 and self._history[1][0] <= base_index:
            self._history.pop(0)

    def reset(self, base_index: LogIndex, members: Members) -> None:
        """A snapshot says who they are."""
        self._history = [(base_index, members)]
        self._renew()

    def at(self, index: LogIndex) -> Members:
        """In force at this index, as far back as is remembered."""
        found = self._history[0][1]
        for changed_at, members in self._history:
            if changed_at <= index:
                found = members
        return found

    def is_voter(self, member_id: MemberId) -> bool:
        """Whether its vote and its flushed entries count."""
        return member_id in self.voters

    def is_needed(self, member_id: MemberId, commit_index: LogIndex) -> bool:
        """Whether this member may have to lead: it is a voter, or was one until a change that may
        not be committed yet. Only the last change can be such a one: each waits for the commit of
        the one before.
        """
        if self.is_voter(member_id):
            return True
        return self.index > commit_index and member_id in self._history[-2][1].voters

    def leaving(self, commit_index: LogIndex) -> list[MemberId]:
        """Whom the last change takes out, if that may not be committed yet."""
        if self.index <= commit_index:
            return []
        before = self._history[-2][1]
        return [member.id for member in before if self.members.find(member.id) is None]

    def _renew(self) -> None:
        self.index, self.members = self._history[-1]
        self.voters = self.members.voters
        self.majority = self.members.majority

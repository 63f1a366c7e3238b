"""What `__groups` consists of: keys, and tagged, versioned values; nothing else makes state. Pure.

Owns the bytes. The topic is compacted: a value replaces the one before it under its key, a
tombstone removes it, and what a group is follows from the last value of each key, in whatever order
they are read. It must never give a tag a second meaning or drop a field. Keys and values are
arrays: a new field comes at the end, with a default; a value whose meaning an older reader would
get wrong without it gets a higher version. An unknown key is skipped if its value is optional, and
stops the load otherwise.

    GroupKey            epochs of a group, and since when it is empty
    MemberKey           what a member said about itself
    TargetKey           what a member should own in the end
    OwnedKey            what it owns, since which epoch, and how far it has come
    OffsetKey           how far the group has read a partition
    StagedKey           offsets that a transaction has sent to the group, and that are not decided
    MEANINGLESS         nothing: a tombstone under it tells that its writer led the partition
"""

from typing import Final, NoReturn

import msgspec

from tidelog.broker.groups.state.messages import StoredRecord
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    LeaderEpoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
)

NO_BROKER: Final = -1


class GroupKey(msgspec.Struct, frozen=True, array_like=True, tag="group"):
    """A group as a whole."""

    group: str


class MemberKey(msgspec.Struct, frozen=True, array_like=True, tag="member"):
    """A member's own words."""

    group: str
    member_id: str


class TargetKey(msgspec.Struct, frozen=True, array_like=True, tag="target"):
    """A member's target."""

    group: str
    member_id: str


class OwnedKey(msgspec.Struct, frozen=True, array_like=True, tag="owned"):
    """A member's partitions."""

    group: str
    member_id: str


class OffsetKey(msgspec.Struct, frozen=True, array_like=True, tag="offset"):
    """A partition's committed offset."""

    group: str
    topic_id: TopicId
    partition: PartitionId


class StagedKey(msgspec.Struct, frozen=True, array_like=True, tag="staged"):
    """One part of what a producer's transaction has sent to a group.

    Never the key of an ordinary offset: compaction would keep whichever of the two was written
    last, and it is the transaction's end that counts, not its record's place.
    """

    group: str
    producer_id: ProducerId
    number: int


Key = GroupKey | MemberKey | TargetKey | OwnedKey | OffsetKey | StagedKey


class Value(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What every release knows of any value."""

    version: int = 1
    is_optional: bool = False


class GroupValue(Value, frozen=True, kw_only=True, array_like=True, tag="group"):
    """A group that has or had members."""

    group_type: int
    """`GroupType`."""
    group_epoch: int
    assignment_epoch: int
    assignor: int
    """With which the target was computed."""
    topics_digest: bytes
    """Of the topics and partition counts on which `group_epoch` stands: a new coordinator sees by
    it whether they changed meanwhile."""
    empty_since_ms: int
    """Wall time; -1: it has members."""


class MemberValue(Value, frozen=True, kw_only=True, array_like=True, tag="member"):
    """What a member said about itself; it is a member as long as this is there."""

    group_instance_id: str
    rack: str
    client_id: str
    address: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    """In ascending order."""
    topic_pattern: str
    assignor: int
    broker_id: int = NO_BROKER
    """The broker that is the member for a client; -1: the client is the member itself."""
    broker_epoch: int = NO_BROKER
    """In which of the broker's lives; with another one the member is none any more."""


class TopicPartitionsValue(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, in ascending order."""

    topic_id: TopicId
    partitions: tuple[int, ...]


class TargetValue(Value, frozen=True, kw_only=True, array_like=True, tag="target"):
    """What a member should own as of the group's assignment_epoch; absent: nothing."""

    topics: tuple[TopicPartitionsValue, ...]


class OwnedPartitionsValue(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, in ascending order, each with its partition_assignment_epoch."""

    topic_id: TopicId
    partitions: tuple[int, ...]
    epochs: tuple[int, ...]


class OwnedValue(Value, frozen=True, kw_only=True, array_like=True, tag="owned"):
    """How far a member has come."""

    member_epoch: int
    previous_epoch: int
    """The epoch with which it sent the heartbeat that brought it to `member_epoch`."""
    heartbeat_sequence: int
    """Of the last heartbeat that changed something of this member."""
    is_away: bool
    """A static member that has left for a while."""
    assigned: tuple[OwnedPartitionsValue, ...]
    revoking: tuple[OwnedPartitionsValue, ...]
    """It was told to give them up and has not said yet that it did."""


class OffsetValue(Value, frozen=True, kw_only=True, array_like=True, tag="offset"):
    """A committed offset."""

    committed_offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_time_ms: int


class StagedPartitionValue(msgspec.Struct, frozen=True, array_like=True):
    """How far one partition was read."""

    partition: PartitionId
    committed_offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


class StagedTopicValue(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, in ascending order."""

    topic_id: TopicId
    partitions: tuple[StagedPartitionValue, ...]


class StagedValue(Value, frozen=True, kw_only=True, array_like=True, tag="staged"):
    """One part; its batch is transactional, and a marker of a higher epoch decides it."""

    producer_epoch: ProducerEpoch
    transactional_id: str
    staged_ms: int
    """Wall time."""
    topics: tuple[StagedTopicValue, ...]


AnyValue = GroupValue | MemberValue | TargetValue | OwnedValue | OffsetValue | StagedValue

_KNOWN_VERSIONS: Final[dict[str, int]] = {
    "group": 1,
    "member": 1,
    "target": 1,
    "owned": 1,
    "offset": 1,
    "staged": 1,
}


class _AnyKey(msgspec.Struct, array_like=True):
    """As much as every release knows of any key."""

    type: str


class _Envelope(msgspec.Struct, array_like=True):
    """As much as every release knows of any value."""

    type: str
    version: int
    is_optional: bool


_ENCODER: Final = msgspec.msgpack.Encoder()
MEANINGLESS: Final = _ENCODER.encode(("nothing",))
"""A key of no known type, which every release skips."""
_KEY_DECODER: Final = msgspec.msgpack.Decoder(Key)
_VALUE_DECODER: Final = msgspec.msgpack.Decoder(AnyValue)
_ANY_KEY_DECODER: Final = msgspec.msgpack.Decoder(_AnyKey)
_ENVELOPE_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)


def encode_record(key: Key, value: AnyValue | None) -> StoredRecord:
    """The bytes of a record; None: a tombstone."""
    assert value is None or type(value) is VALUE_OF[type(key)], f"{value} under {key}"
    return StoredRecord(_ENCODER.encode(key), None if value is None else _ENCODER.encode(value))


def decode_record(key: bytes, value: bytes | None) -> tuple[Key, AnyValue | None] | None:
    """The record; None: one that this release need not know."""
    try:
        kind = _ANY_KEY_DECODER.decode(key).type
        if value is not None:
            envelope = _ENVELOPE_DECODER.decode(value)
            if kind != envelope.type or envelope.version > _KNOWN_VERSIONS.get(kind, 0):
                _require_optional(envelope)
                return None
        elif kind not in _KNOWN_VERSIONS:
            return None
        return _KEY_DECODER.decode(key), None if value is None else _VALUE_DECODER.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(error)


def _require_optional(envelope: _Envelope) -> None:
    if not envelope.is_optional:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried="load the groups of a partition of `__groups`",
            happened=f"it holds a `{envelope.type}` record of version {envelope.version}, which "
            "this release must know and does not",
        )


def _refuse(error: Exception) -> NoReturn:
    raise TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried="load the groups of a partition of `__groups`",
        happened=f"a batch's checksum is right, its content is not a record of groups: {error}",
    ) from error


VALUE_OF: Final[dict[type[Key], type[AnyValue]]] = {
    GroupKey: GroupValue,
    MemberKey: MemberValue,
    TargetKey: TargetValue,
    OwnedKey: OwnedValue,
    OffsetKey: OffsetValue,
    StagedKey: StagedValue,
}
"""Which value stands under which key."""

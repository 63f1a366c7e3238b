"""What `__transactions` consists of: keys, and tagged, versioned values; nothing else makes state.

Pure. Owns the bytes. The topic is compacted: a value replaces the one before it under its key, a
tombstone removes it. One value holds everything about its transactional id, so that no order and no
compaction can leave half of it. It must never give a tag a second meaning or drop a field. Keys and
values are arrays: a new field comes at the end, with a default; a value whose meaning an older
reader would get wrong without it gets a higher version. An unknown key is skipped if its value is
optional, and stops the load otherwise.

    TransactionKey      a transactional id: state, identities, partitions touched
    (SinkKey            a sink of staged publish: comes with it, under the tag `sink`)
    MEANINGLESS         nothing: a tombstone under it tells that its writer led the partition
"""

from typing import Final, NoReturn

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.messages import StoredRecord
from tidelog.broker.transactions.state.states import (
    COMPLETE_OF,
    IDLE,
    TRANSACTION_VERSION,
    Decision,
    Succession,
    TransactionState,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import ProducerEpoch, ProducerId, TopicId


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag="transaction"):
    """A transactional id."""

    transactional_id: str


Key = TransactionKey


class TouchedTopic(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, in ascending order."""

    topic_id: TopicId
    partitions: tuple[int, ...]


class DecidedToken(msgspec.Struct, frozen=True, array_like=True):
    """A prepared transaction that was decided, and how."""

    identity: Identity
    decision: Decision
    is_by_operator: bool = False


class TransactionValue(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag="transaction"
):
    """All that is known of a transactional id."""

    version: int = 1
    is_optional: bool = False
    transaction_version: int = TRANSACTION_VERSION
    state: TransactionState
    current: Identity
    """While markers are on their way the identity that they carry, else the one that works."""
    last: Identity | None
    """The one before: of whoever has not heard of the end, or must not work any more."""
    succession: Succession
    """Why `last` gave way."""
    next_producer_id: ProducerId | None
    """While markers are on their way: takes over, with epoch 0, once they are there."""
    timeout_ms: int
    started_ms: int
    """Wall time; -1: none is in progress."""
    updated_ms: int
    """Wall time of this record: an id that nobody used for long is forgotten by it."""
    topics: tuple[TouchedTopic, ...]
    """What the transaction in progress touches, in ascending order."""
    principal: str
    """Who prepared; empty: it is not prepared."""
    decided: DecidedToken | None
    """The last prepared transaction that was decided."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress."""
        return self.state in IDLE

    @property
    def is_ending(self) -> bool:
        """Whether a decision is taken whose markers are not all known to be there."""
        return self.state in COMPLETE_OF

    @property
    def successor(self) -> Identity:
        """The identity to work with next: what an end answers."""
        if self.next_producer_id is None:
            return self.current
        return Identity(self.next_producer_id, ProducerEpoch(0))

    @property
    def decision(self) -> Decision:
        """Of a transaction that is ending."""
        assert self.is_ending, f"{self.state.name} has no decision"
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        return Decision.COMMIT if is_commit else Decision.ABORT


_KNOWN_VERSIONS: Final[dict[str, int]] = {"transaction": 1}


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
_KEY_DECODER: Final = msgspec.msgpack.Decoder(TransactionKey)
_VALUE_DECODER: Final = msgspec.msgpack.Decoder(TransactionValue)
_ANY_KEY_DECODER: Final = msgspec.msgpack.Decoder(_AnyKey)
_ENVELOPE_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)
_TRIED: Final = "load the transactions of a partition of `__transactions`"


def encode_record(key: Key, value: TransactionValue | None) -> StoredRecord:
    """Returns the bytes of a record; None makes a tombstone."""
    return StoredRecord(_ENCODER.encode(key), None if value is None else _ENCODER.encode(value))


def decode_record(key: bytes, value: bytes | None) -> tuple[Key, TransactionValue | None] | None:
    """Returns the record; None stands for one that this release need not know."""
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
            tried=_TRIED,
            happened=f"it holds a `{envelope.type}` record of version {envelope.version}, which "
            "this release must know and does not",
        )


def _refuse(error: Exception) -> NoReturn:
    raise TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried=_TRIED,
        happened=f"a batch's checksum is right, its content is not a record of transactions: "
        f"{error}",
    ) from error

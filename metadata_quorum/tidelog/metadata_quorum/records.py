"""What the metadata log consists of: tagged, versioned records; nothing else changes the image.

Owns the persisted form. It must never give a tag a second meaning or drop a field: readers of an
older release skip unknown optional records and stop at unknown required ones. No stop of a
record's walk passes here; every stop reads what these records say.
"""

from typing import Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)

FORMAT_VERSION: Final = 1
"""Of the log as a whole: the first record of every log carries it."""


class FormatRecord(msgspec.Struct, frozen=True, kw_only=True, tag="format", tag_field="type"):
    """The first record: which release's rules the rest follows, and whose log it is."""

    version: int = FORMAT_VERSION
    is_optional: bool = False
    cluster_id: str


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True, tag="broker", tag_field="type"):
    """A broker registered: it replaces what was known of its id."""

    version: int = 1
    is_optional: bool = False
    broker_id: BrokerId
    epoch: BrokerEpoch
    incarnation: bytes
    """Random, new with each start of the process."""
    listeners: dict[str, str]
    """Listener name → advertised `host:port`."""
    host_name: str = ""
    rack: str = ""
    is_fenced: bool = True


class FenceRecord(msgspec.Struct, frozen=True, kw_only=True, tag="fence", tag_field="type"):
    """A broker may lead from now on, or no more."""

    version: int = 1
    is_optional: bool = False
    broker_id: BrokerId
    epoch: BrokerEpoch
    is_fenced: bool


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True, tag="topic", tag_field="type"):
    """A topic came to be; its partitions follow in the same entry."""

    version: int = 1
    is_optional: bool = False
    topic_id: TopicId
    name: str
    configuration: dict[str, str] = {}
    is_internal: bool = False


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, tag="partition", tag_field="type"):
    """The whole state of one partition: it replaces what was known."""

    version: int = 1
    is_optional: bool = False
    topic_id: TopicId
    partition: PartitionId
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    in_sync_replicas: tuple[BrokerId, ...]


class TopicConfigurationRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag="topic_configuration", tag_field="type"
):
    """All settings of a topic: they replace the earlier ones."""

    version: int = 1
    is_optional: bool = False
    topic_id: TopicId
    configuration: dict[str, str]


MetadataRecord = (
    FormatRecord
    | BrokerRecord
    | FenceRecord
    | TopicRecord
    | PartitionRecord
    | TopicConfigurationRecord
)


class _Envelope(msgspec.Struct, kw_only=True):
    """As much as every release knows of any record."""

    type: str
    version: int = 1
    is_optional: bool = False


_KNOWN_VERSIONS: Final[dict[str, int]] = {
    "format": FORMAT_VERSION,
    "broker": 1,
    "fence": 1,
    "topic": 1,
    "partition": 1,
    "topic_configuration": 1,
}

_ENCODER: Final = msgspec.msgpack.Encoder()
_RAW_DECODER: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENVELOPE_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)
_RECORD_DECODER: Final = msgspec.msgpack.Decoder(MetadataRecord)


def encode_entry(records: tuple[MetadataRecord, ...]) -> bytes:
    """One entry of the log: records that take effect together."""
    assert records, "an entry holds at least one record"
    return _ENCODER.encode(records)


def decode_entry(payload: bytes) -> tuple[MetadataRecord, ...]:
    """The records of an entry, without optional ones that this release does not know."""
    try:
        found = []
        for raw in _RAW_DECODER.decode(payload):
            envelope = _ENVELOPE_DECODER.decode(raw)
            if envelope.version <= _KNOWN_VERSIONS.get(envelope.type, 0):
                found.append(_RECORD_DECODER.decode(raw))
            elif not envelope.is_optional:
                raise TidelogError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    tried="read the metadata log",
                    happened=f"it holds a `{envelope.type}` record of version {envelope.version}, "
                    "which this release must know and does not",
                )
        return tuple(found)
    except msgspec.MsgspecError as error:
        raise TidelogError(
            ErrorCode.STORAGE_CORRUPT,
            tried="read an entry of the metadata log",
            happened=f"its checksum is right, its content is not a list of records: {error}",
        ) from error

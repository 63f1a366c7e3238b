"""What the metadata log consists of: tagged, versioned records; nothing else changes the image.

Owns the union of all records and the bytes of an entry. It must never give a tag a second meaning
or drop a field: readers of an older release skip unknown optional records and stop at unknown
required ones. A new field has a default; a record whose meaning an older reader would get wrong
without it gets a higher version. No stop of a record's walk passes here; every stop reads what
these records say.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from tidelog.metadata.records.broker import (
    BrokerChangeRecord,
    BrokerDirectory,
    BrokerRecord,
    BrokerRemovedRecord,
    DirectoryEpoch,
    DirectoryEpochsRecord,
    FeatureRange,
    FenceRecord,
)
from tidelog.metadata.records.cluster import (
    FORMAT_VERSION,
    AbortRecord,
    BeginRecord,
    BrokerConfigurationRecord,
    ClusterConfigurationRecord,
    ClusterRecord,
    EndRecord,
    FeatureRecord,
    FormatRecord,
    GroupConfigurationRecord,
    ProducerIdsRecord,
    QuotaRecord,
    TopicConfigurationChangeRecord,
    TopicConfigurationRecord,
)
from tidelog.metadata.records.topic import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from tidelog.wire.errors import ErrorCode, TidelogError

__all__ = [
    "FORMAT_VERSION",
    "AbortRecord",
    "BeginRecord",
    "BrokerChangeRecord",
    "BrokerConfigurationRecord",
    "BrokerDirectory",
    "BrokerRecord",
    "BrokerRemovedRecord",
    "ClusterConfigurationRecord",
    "ClusterRecord",
    "DirectoryEpoch",
    "DirectoryEpochsRecord",
    "EndRecord",
    "FeatureRange",
    "FeatureRecord",
    "FenceRecord",
    "FormatRecord",
    "GroupConfigurationRecord",
    "MetadataRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "QuotaRecord",
    "TopicConfigurationChangeRecord",
    "TopicConfigurationRecord",
    "TopicRecord",
    "TopicRemovedRecord",
    "decode_entry",
    "encode_entry",
]

MetadataRecord = (
    FormatRecord
    | ClusterRecord
    | FeatureRecord
    | BeginRecord
    | EndRecord
    | AbortRecord
    | BrokerRecord
    | FenceRecord
    | BrokerChangeRecord
    | DirectoryEpochsRecord
    | BrokerRemovedRecord
    | TopicRecord
    | TopicRemovedRecord
    | PartitionRecord
    | PartitionChangeRecord
    | TopicConfigurationRecord
    | TopicConfigurationChangeRecord
    | ClusterConfigurationRecord
    | BrokerConfigurationRecord
    | GroupConfigurationRecord
    | QuotaRecord
    | ProducerIdsRecord
)

_KNOWN_VERSIONS: Final[dict[str, int]] = {
    "format": FORMAT_VERSION,
    "cluster": 1,
    "feature": 1,
    "begin": 1,
    "end": 1,
    "abort": 1,
    "broker": 1,
    "fence": 1,
    "broker_change": 1,
    "directory_epochs": 1,
    "broker_removed": 1,
    "topic": 1,
    "topic_removed": 1,
    "partition": 1,
    "partition_change": 1,
    "topic_configuration": 1,
    "topic_configuration_change": 1,
    "cluster_configuration": 1,
    "broker_configuration": 1,
    "group_configuration": 1,
    "quota": 1,
    "producer_ids": 1,
}


class _Envelope(msgspec.Struct, kw_only=True):
    """As much as every release knows of any record."""

    type: str
    version: int = 1
    is_optional: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder()
_ENTRY_DECODER: Final = msgspec.msgpack.Decoder(list[MetadataRecord])
_RAW_DECODER: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENVELOPE_DECODER: Final = msgspec.msgpack.Decoder(_Envelope)
_RECORD_DECODER: Final = msgspec.msgpack.Decoder(MetadataRecord)


def encode_entry(records: Sequence[MetadataRecord]) -> bytes:
    """One entry of the log: records that take effect together."""
    assert records, "an entry holds at least one record"
    return _ENCODER.encode(records)


def decode_entry(payload: bytes) -> tuple[MetadataRecord, ...]:
    """The records of an entry, without optional ones that this release does not know."""
    try:
        try:
            records = _ENTRY_DECODER.decode(payload)
        except msgspec.ValidationError:
            return _decode_one_by_one(payload)
        if all(record.version <= 1 for record in records):
            return tuple(records)
        return _decode_one_by_one(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse(error)


def _decode_one_by_one(payload: bytes) -> tuple[MetadataRecord, ...]:
    """For entries with something that a quick decoder does not know."""
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


def _refuse(error: Exception) -> NoReturn:
    raise TidelogError(
        ErrorCode.STORAGE_CORRUPT,
        tried="read an entry of the metadata log",
        happened=f"its checksum is right, its content is not a list of records: {error}",
    ) from error

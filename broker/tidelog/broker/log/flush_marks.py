"""What is known to be durable, as bytes: one fixed-size entry a partition and flush round. Pure.

An entry is written after its flush has ended and says that everything of the partition below the
offset is durable. It becomes durable with the next flush round: a crash of the machine may lose the
marks of the last round, and then less is known; the death of the process alone loses none.

    topic id (16) | partition u32 | flushed_offset i64 | CRC-32C over the three u32    = 32 bytes
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.log.names import PartitionKey
from tidelog.wire.batch import checksum
from tidelog.wire.ids import Offset, PartitionId, TopicId

_BODY: Final = struct.Struct(">16sIq")
_SUM: Final = struct.Struct(">I")
ENTRY_BYTES: Final = _BODY.size + _SUM.size


def encode_marks(marks: Iterable[tuple[PartitionKey, Offset]]) -> bytes:
    """Entries in the order given."""
    pieces = []
    for key, flushed_offset in marks:
        assert flushed_offset >= 0, f"{key}: nothing is flushed below {flushed_offset}"
        body = _BODY.pack(key.topic_id, key.partition, flushed_offset)
        pieces += [body, _SUM.pack(checksum(body))]
    return b"".join(pieces)


def decode_marks(data: bytes) -> Mapping[PartitionKey, Offset]:
    """The highest offset that a whole entry gives of each partition; torn entries are skipped."""
    marks: dict[PartitionKey, Offset] = {}
    for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        body = data[position : position + _BODY.size]
        (stored,) = _SUM.unpack_from(data, position + _BODY.size)
        if checksum(body) != stored:
            continue
        topic_id, partition, flushed_offset = _BODY.unpack(body)
        key = PartitionKey(TopicId(topic_id), PartitionId(partition))
        marks[key] = max(marks.get(key, Offset(0)), Offset(flushed_offset))
    return marks

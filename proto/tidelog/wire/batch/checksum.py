"""The three sums: over a batch's bytes, over where it belongs, over what a fetch answers.

Owns their exact definitions (`proto/BATCH.md`, "Sums"). CRC-32C (Castagnoli) throughout.
"""

import struct
from typing import Final

import google_crc32c

from tidelog.wire.batch.errors import CorruptBatch
from tidelog.wire.batch.header import BatchHeader
from tidelog.wire.batch.layout import ATTRIBUTES_POSITION, Buffer
from tidelog.wire.ids import TOPIC_ID_BYTES, TopicId

_ROUTE: Final = struct.Struct(">16sII")
_FETCH: Final = struct.Struct(">16sIqI")


def checksum(data: Buffer) -> int:
    """CRC-32C of the bytes, as an unsigned 32-bit number."""
    # The C implementation reads bytes objects only; bytes() of a bytes object copies nothing.
    value: int = google_crc32c.value(bytes(data))
    return value


def extend_checksum(crc: int, data: bytes) -> int:
    """CRC-32C of what `crc` is the sum of, followed by these bytes."""
    value: int = google_crc32c.extend(crc, data)
    return value


def batch_checksum(buffer: Buffer, header: BatchHeader, position: int = 0) -> int:
    """The sum that the header should hold: from the attributes to the end of the batch."""
    end = position + header.size_bytes
    assert end <= len(buffer), f"the batch at byte {position} reaches beyond the buffer"
    return checksum(buffer[position + ATTRIBUTES_POSITION : end])


def verify_checksum(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Refuses a batch of which a byte under the checksum is not the one that was sealed."""
    computed = batch_checksum(buffer, header, position)
    if computed != header.crc:
        raise CorruptBatch(
            tried=f"verify the batch at byte {position} (base offset {header.base_offset})",
            happened=f"its checksum is {header.crc:#010x}, its bytes give {computed:#010x}",
        )


def route_sum(topic_id: TopicId, partition: int, batch_crc: int) -> int:
    """Binds a sealed batch to its partition: sum over topic id, partition, the batch's checksum."""
    assert len(topic_id) == TOPIC_ID_BYTES, f"a topic id has 16 bytes, not {len(topic_id)}"
    return checksum(_ROUTE.pack(topic_id, partition, batch_crc))


def fetch_sum(topic_id: TopicId, partition: int, first_base_offset: int, crc_of_bytes: int) -> int:
    """Binds a fetch answer to what was asked: where it comes from and all of its bytes."""
    assert len(topic_id) == TOPIC_ID_BYTES, f"a topic id has 16 bytes, not {len(topic_id)}"
    return checksum(_FETCH.pack(topic_id, partition, first_base_offset, crc_of_bytes))

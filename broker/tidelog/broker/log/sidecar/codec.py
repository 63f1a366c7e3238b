"""Bytes of a sidecar: its head, its summary and where the sections lie. Pure.

    8 bytes "TIDESIDE" | u16 version | u16 zero | u32 length of the summary
    u32 CRC-32C of the summary | u32 CRC-32C of the 20 bytes before it             = 24 bytes

The head keeps this form in every version, so that an old release can name a newer one. Sections
that are not known are skipped; what a reader must know raises the version. Bytes of a file are not
trusted: whatever they hold, the answer is a Summary that was checked or a TidelogError.
"""

import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import msgspec

from tidelog.broker.log.names import SegmentKey
from tidelog.broker.log.sidecar.blocks import corrupt_sidecar
from tidelog.broker.log.sidecar.contents import (
    FORMAT_VERSION,
    MAGIC,
    NEVER_MS,
    PLAIN_VERSION,
    Section,
    Summary,
)
from tidelog.broker.log.sidecar.digests import DIGESTS
from tidelog.broker.log.sidecar.index import INDEX, INDEX_TOP
from tidelog.wire.batch import checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    TOPIC_ID_BYTES,
    BytePosition,
    Offset,
    PartitionId,
    PartitionKey,
    TopicId,
)

PRODUCERS: Final = "producers"
TRANSACTIONS: Final = "transactions"
SECTIONS: Final = (INDEX, INDEX_TOP, DIGESTS, PRODUCERS)
"""In the order of the file; each is always there, if need be empty."""
SECTIONS_MAX: Final = (*SECTIONS, TRANSACTIONS)
"""With the one that raises the version: who passed over it would show what was aborted."""
HEAD_BYTES: Final = 24
FIRST_READ_BYTES: Final = 4096
"""A first read of this much holds the summary of all but strange sidecars."""
SUMMARY_BYTES_MAX: Final = 16 * 1024 * 1024
OFFSET_MAX: Final = 2**63 - 1

_NO_KEY: Final = SegmentKey(PartitionKey(TopicId(bytes(16)), PartitionId(0)), Offset(0))
_HEAD: Final = struct.Struct(">8sHHII")
_SUM: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Summary)


def encode_summary(summary: Summary) -> bytes:
    """Also the result of a job that made a sidecar."""
    return _encoder.encode(summary)


def encode_sidecar(summary: Summary, sections: Mapping[str, bytes]) -> tuple[Summary, bytes]:
    """The file, and the summary with its sections filled in."""
    names = tuple(sections)
    assert names in (SECTIONS, SECTIONS_MAX), f"a sidecar has {SECTIONS_MAX}, not {names}"
    assert not (wrong := _wrong_in(summary)), f"a summary that tells of {wrong}"
    length_bytes = 0
    # The summary tells positions that its own length moves: both grow together until they fit.
    while True:
        summary = _placed(summary, sections, HEAD_BYTES + length_bytes)
        body = encode_summary(summary)
        if len(body) == length_bytes:
            break
        assert len(body) > length_bytes, "later positions take no fewer bytes"
        length_bytes = len(body)
    assert length_bytes <= SUMMARY_BYTES_MAX, f"a summary of {length_bytes} bytes"
    version = FORMAT_VERSION if TRANSACTIONS in sections else PLAIN_VERSION
    head = _HEAD.pack(MAGIC, version, 0, length_bytes, checksum(body))
    return summary, b"".join((head, _SUM.pack(checksum(head)), body, *sections.values()))


def _placed(summary: Summary, sections: Mapping[str, bytes], byte_position: int) -> Summary:
    placed = []
    for name, data in sections.items():
        placed.append(Section(name, BytePosition(byte_position), len(data), checksum(data)))
        byte_position += len(data)
    return msgspec.structs.replace(summary, sections=tuple(placed))


def summary_end(data: bytes, key: SegmentKey) -> int:
    """How many bytes of the file must be read for its summary; `data` begins with the head."""
    if len(data) < HEAD_BYTES:
        raise corrupt_sidecar(key, 0, f"it has {len(data)} bytes, its head alone {HEAD_BYTES}")
    magic: bytes
    version: int
    length_bytes: int
    magic, version, zero, length_bytes, _ = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise corrupt_sidecar(key, 0, "it does not begin as a sidecar does")
    (stored,) = _SUM.unpack_from(data, _HEAD.size)
    if checksum(data[: _HEAD.size]) != stored:
        raise corrupt_sidecar(key, 0, "its head contradicts its checksum")
    if version > FORMAT_VERSION:
        raise TidelogError(
            ErrorCode.UNSUPPORTED_VERSION,
            tried=f"read {key.sidecar_path}",
            happened=f"its format version is {version}, this release knows {FORMAT_VERSION}",
        )
    if version < 1 or zero or length_bytes > SUMMARY_BYTES_MAX:
        raise corrupt_sidecar(key, 8, f"version {version} with {length_bytes} bytes cannot be")
    return HEAD_BYTES + length_bytes


def claimed_key(data: bytes) -> SegmentKey:
    """Whose sidecar it says it is, for a reader who has no name to go by: nothing else of it is
    checked. STORAGE_CORRUPT if it does not say."""
    end = summary_end(data, _NO_KEY)
    return decode_bare_summary(data[HEAD_BYTES:end], _NO_KEY).key


def decode_summary(data: bytes, key: SegmentKey, *, file_bytes: int) -> Summary:
    """The summary of the sidecar of `key`, whose first `summary_end` bytes (or more) are `data`.

    `file_bytes` is the sidecar's length: the summary must account for every byte of it.
    """
    end = summary_end(data, key)
    body = data[HEAD_BYTES:end]
    if len(body) != end - HEAD_BYTES:
        raise corrupt_sidecar(key, len(data), "its summary is cut off")
    if checksum(body) != _HEAD.unpack_from(data)[4]:
        raise corrupt_sidecar(key, HEAD_BYTES, "its summary contradicts its checksum")
    summary = decode_bare_summary(body, key)
    if summary.key != key:
        raise corrupt_sidecar(key, HEAD_BYTES, f"it is the sidecar of {summary.key.path}")
    version: int = _HEAD.unpack_from(data)[1]
    if has_transactions(summary) != (version > PLAIN_VERSION):
        raise corrupt_sidecar(key, HEAD_BYTES, f"its sections are not those of version {version}")
    _check_sections(summary, key, end, file_bytes)
    return summary


def decode_bare_summary(body: bytes, key: SegmentKey) -> Summary:
    """What `encode_summary` has written, checked."""
    try:
        summary = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise corrupt_sidecar(key, HEAD_BYTES, f"its summary is none: {error}") from None
    if wrong := _wrong_in(summary):
        raise corrupt_sidecar(key, HEAD_BYTES, f"its summary tells of {wrong}")
    return summary


def find_section(summary: Summary, name: str) -> Section:
    """A section of a summary that was decoded or encoded here."""
    for section in summary.sections:
        if section.name == name:
            return section
    raise corrupt_sidecar(summary.key, HEAD_BYTES, f"it has no section {name}")


def has_transactions(summary: Summary) -> bool:
    """Whether the segment has to do with a transaction: has batches of one, or lies in one."""
    return any(section.name == TRANSACTIONS for section in summary.sections)


def check_section(key: SegmentKey, section: Section, data: bytes) -> bytes:
    """The whole section's bytes, if they are the ones that were written."""
    if len(data) != section.length_bytes or checksum(data) != section.checksum:
        raise corrupt_sidecar(
            key, section.byte_position, f"its {section.name} contradict their checksum"
        )
    return data


def _wrong_in(summary: Summary) -> str:
    """What of it cannot be; empty: all of it can."""
    if len(summary.topic_id) != TOPIC_ID_BYTES:
        return f"a topic id of {len(summary.topic_id)} bytes"
    if not (0 <= summary.partition < 2**32 and 0 <= summary.generation < 10**8):
        return f"partition {summary.partition}, generation {summary.generation}"
    if not 0 <= summary.base_offset <= summary.next_offset <= OFFSET_MAX:
        return f"offsets from {summary.base_offset} to {summary.next_offset}"
    if summary.size_bytes < 0 or summary.batch_count < 0 or summary.record_count < 0:
        return "sizes below zero"
    if (summary.batch_count == 0) != (summary.size_bytes == 0):
        return f"{summary.batch_count} batches in {summary.size_bytes} bytes"
    if (summary.max_timestamp < 0) != (summary.max_timestamp_offset < 0):
        return f"time {summary.max_timestamp} at offset {summary.max_timestamp_offset}"
    if min(summary.cleaned_below, summary.tombstone_horizon_ms - NEVER_MS) < 0:
        return "a compaction that cannot be"
    starts = summary.leader_epochs
    ascends = all(
        before.epoch < after.epoch and before.start_offset < after.start_offset
        for before, after in pairwise(starts)
    )
    if not ascends or (starts and (starts[0].epoch < 0 or starts[0].start_offset < 0)):
        return "leader epochs that do not ascend"
    if starts and starts[-1].start_offset >= summary.next_offset:
        return "a leader epoch that begins behind its end"
    return ""


def _check_sections(summary: Summary, key: SegmentKey, end: int, file_bytes: int) -> None:
    names = [section.name for section in summary.sections]
    if len(set(names)) != len(names) or not set(SECTIONS) <= set(names):
        raise corrupt_sidecar(key, HEAD_BYTES, f"its sections are {', '.join(names)}")
    for section in summary.sections:
        if section.byte_position != end or section.length_bytes < 0:
            raise corrupt_sidecar(key, HEAD_BYTES, f"its {section.name} lie at no place of theirs")
        end += section.length_bytes
    if end != file_bytes:
        raise corrupt_sidecar(key, min(end, file_bytes), f"it has {file_bytes} bytes, not {end}")

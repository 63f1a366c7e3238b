"""Names of directories and files in a data directory. Pure."""

from typing import Final

import msgspec

from tidelog.wire.ids import TOPIC_ID_BYTES, Offset, PartitionId, TopicId, topic_id_text

SEGMENT_SUFFIX: Final = ".log"
_OFFSET_DIGITS: Final = 20


class PartitionKey(msgspec.Struct, frozen=True, order=True):
    """Which partition: everything that is stored or sent between nodes is keyed by it."""

    topic_id: TopicId
    partition: PartitionId

    def __str__(self) -> str:
        return directory_name(self)


class SegmentKey(msgspec.Struct, frozen=True, order=True):
    """Which segment of which partition."""

    partition: PartitionKey
    base_offset: Offset

    @property
    def path(self) -> str:
        """The file, relative to the data directory."""
        return f"{directory_name(self.partition)}/{segment_name(self.base_offset)}"


def directory_name(key: PartitionKey) -> str:
    """`<topic id hex>-<partition>`."""
    return f"{topic_id_text(key.topic_id)}-{key.partition}"


def parse_directory_name(name: str) -> PartitionKey | None:
    """The partition whose directory this is; None for every other name."""
    topic_text, dash, number = name.rstrip("/").partition("-")
    if not dash or len(topic_text) != 2 * TOPIC_ID_BYTES or not _is_number(number):
        return None
    try:
        topic_id = bytes.fromhex(topic_text)
    except ValueError:
        return None
    key = PartitionKey(TopicId(topic_id), PartitionId(int(number)))
    return key if directory_name(key) == name.rstrip("/") else None


def segment_name(base_offset: int) -> str:
    """Twenty digits, so that names sort as offsets do."""
    assert 0 <= base_offset < 10**_OFFSET_DIGITS, f"an offset of a segment: {base_offset}"
    return f"{base_offset:0{_OFFSET_DIGITS}d}{SEGMENT_SUFFIX}"


def parse_segment_name(name: str) -> Offset | None:
    """The base offset in a segment's name; None for every other name."""
    digits, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
    if suffix != SEGMENT_SUFFIX or len(digits) != _OFFSET_DIGITS or not _is_number(digits):
        return None
    return Offset(int(digits))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()

"""Names of directories and files in a data directory. Pure.

<topic id hex>-<partition>/
    00000000000000000000.log             a segment: batches and nothing else
    00000000000000000000.sidecar         what is derived from it, once it is sealed
    00000000000000000000-00000003.log    the third compaction of what begins at that offset
    *.new                                not finished: removed at the next start
"""

from typing import Final

import msgspec

from tidelog.wire.ids import TOPIC_ID_BYTES, Offset, PartitionId, PartitionKey, TopicId

SEGMENT_SUFFIX: Final = ".log"
SIDECAR_SUFFIX: Final = ".sidecar"
UNFINISHED_SUFFIX: Final = ".new"
_OFFSET_DIGITS: Final = 20
_GENERATION_DIGITS: Final = 8


class SegmentKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Which segment of which partition; a name is never used for other bytes."""

    partition: PartitionKey
    base_offset: Offset
    generation: int = 0
    """0: as it was appended. Each compaction that rewrites it takes a higher one."""

    @property
    def path(self) -> str:
        """The file, relative to the data directory."""
        return f"{directory_name(self.partition)}/{segment_name(self.base_offset, self.generation)}"

    @property
    def sidecar_path(self) -> str:
        """The file of what is derived from it."""
        return self.path.removesuffix(SEGMENT_SUFFIX) + SIDECAR_SUFFIX


def directory_name(key: PartitionKey) -> str:
    """`<topic id hex>-<partition>`: the key's printed form is the name on disk."""
    return str(key)


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


def partition_of(path: str) -> PartitionKey | None:
    """Whose file or directory this is, by its path in the data directory; None: no partition's."""
    return parse_directory_name(path.partition("/")[0])


def segment_name(base_offset: int, generation: int = 0) -> str:
    """Twenty digits, so that names sort as offsets do."""
    assert 0 <= base_offset < 10**_OFFSET_DIGITS, f"an offset of a segment: {base_offset}"
    assert 0 <= generation < 10**_GENERATION_DIGITS, f"a generation of a segment: {generation}"
    suffix = f"-{generation:0{_GENERATION_DIGITS}d}" if generation else ""
    return f"{base_offset:0{_OFFSET_DIGITS}d}{suffix}{SEGMENT_SUFFIX}"


def parse_segment_name(name: str) -> tuple[Offset, int] | None:
    """Base offset and generation in a segment's name; None for every other name."""
    if not name.endswith(SEGMENT_SUFFIX):
        return None
    digits, dash, generation = name.removesuffix(SEGMENT_SUFFIX).partition("-")
    if not _is_number(digits) or (dash and not _is_number(generation)):
        return None
    number = int(generation) if dash else 0
    if len(digits) != _OFFSET_DIGITS or number >= 10**_GENERATION_DIGITS:
        return None
    return (Offset(int(digits)), number) if segment_name(int(digits), number) == name else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()

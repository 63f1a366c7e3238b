"""What a medium holds for certain, held against what the log has promised about it.

Only a simulator can look there. It is told nothing by the node under test but the bytes of its
files: what no crash could take any more.
"""

from tidelog.broker.log.marks.marks import PartitionMarks, decode_marks
from tidelog.broker.log.names import SEGMENT_SUFFIX, directory_name, parse_segment_name
from tidelog.chaos.checkers.log.derived import walk
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium
from tidelog.wire.ids import PartitionKey

MARKS: str = "marks"
CHECKPOINT: str = "log_checkpoint"


def durable_bytes(medium: Medium, path: str) -> bytes | None:
    """Of a file that a crash could not take; None: there is no such file for certain."""
    place: Inode | Directory | None = medium.root
    for part in path.split("/"):
        if not isinstance(place, Directory):
            return None
        place = place.durable.get(part)
    return bytes(place.durable) if isinstance(place, Inode) else None


def seen_bytes(medium: Medium, path: str) -> bytes | None:
    """Of a file as processes see it."""
    found = medium.find(path)
    return bytes(found.seen) if isinstance(found, Inode) else None


def durable_segments(medium: Medium, key: PartitionKey) -> dict[tuple[int, int], bytearray]:
    """By base offset and generation, the bytes that no crash could take."""
    place = medium.root.durable.get(directory_name(key))
    if not isinstance(place, Directory):
        return {}
    found = {}
    for name, child in place.durable.items():
        parsed = parse_segment_name(name)
        if parsed is not None and isinstance(child, Inode):
            found[int(parsed[0]), parsed[1]] = child.durable
    return found


def durable_end(medium: Medium, key: PartitionKey) -> int:
    """Behind the last whole batch that no crash could take; 0: there is none."""
    headers = (
        header
        for content in durable_segments(medium, key).values()
        for _, header in walk(bytes(content))
    )
    return max((header.next_offset for header in headers), default=0)


def is_durable(medium: Medium, key: PartitionKey, opaque: bytes) -> bool:
    """Whether the batch lies in one of the partition's files for good."""
    place = medium.root.durable.get(directory_name(key))
    if not isinstance(place, Directory):
        return False
    # The newest first: most questions are about what has just been written.
    for name in sorted(place.durable, reverse=True):
        child = place.durable[name]
        if name.endswith(SEGMENT_SUFFIX) and isinstance(child, Inode) and opaque in child.durable:
            return True
    return False


def check_marks(medium: Medium) -> list[str]:
    """No mark promises what a crash could take, or forgets what is gone."""
    data = durable_bytes(medium, MARKS)
    violations: list[str] = []
    for key, marks in decode_marks(data or b"").items():
        segments = durable_segments(medium, key)
        if segments:
            violations += _check_partition(key, marks, segments)
    return violations


def _check_partition(
    key: PartitionKey, marks: PartitionMarks, segments: dict[tuple[int, int], bytearray]
) -> list[str]:
    begin = min(base_offset for base_offset, _ in segments)
    if begin > marks.log_start_offset:
        return [f"lost_head: {key} begins at {begin}, its mark says {marks.log_start_offset}"]
    if marks.flushed_offset <= marks.log_start_offset:
        return []
    end = 0
    for (base_offset, _), data in segments.items():
        if base_offset <= marks.flushed_offset:
            headers = [header for _, header in walk(bytes(data))]
            end = max(end, base_offset, *(header.next_offset for header in headers))
    if end < marks.flushed_offset:
        return [
            (
                f"mark_not_durable: {key} is marked as flushed up to {marks.flushed_offset}, "
                f"a crash could leave {end}"
            )
        ]
    return []

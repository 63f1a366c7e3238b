"""What a log derives from its batches, derived once more from the bytes of its files, and compared.

Pure: it is given a live log and the bytes that the page cache shows. It walks batches by their
headers alone, with no code of the broker's own scans, so that a mistake there cannot hide here.
"""

from collections.abc import Callable, Iterator
from typing import Final

from tidelog.broker.log.index import INTERVAL_BYTES
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.broker.log.state.segments import Segment
from tidelog.wire.batch import BatchHeader, peek_size, read_header
from tidelog.wire.errors import TidelogError

ReadFile = Callable[[str], bytes | None]
"""A path below the data directory → its bytes; None: there is no such file."""

EXPIRATION_MS_MIN: Final = 12 * 60 * 60 * 1000
"""Half of what a producer is kept for: a younger one has to be known."""


def walk(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Byte position and header of each whole batch, up to the first that is none."""
    position = 0
    while position < len(data):
        try:
            size_bytes = peek_size(data, position)
            if size_bytes is None or position + size_bytes > len(data):
                return
            header = read_header(data, position, is_compacted=True)
        except TidelogError:
            return
        yield position, header
        position += size_bytes


def check_derived(log: PartitionLog, read: ReadFile, *, was_cut: bool = False) -> list[str]:
    """Everything that contradicts the files, as violations; nothing may be under way in the log.

    `was_cut`: it was cut below its watermark at some time, on somebody's decision.
    """
    violations: list[str] = []
    headers: list[BatchHeader] = []
    for segment in log.segments:
        data = read(segment.key.path)
        if data is None and segment.size_bytes:
            return [f"lost_file: {segment.key.path} is not there"]
        found = list(walk((data or b"")[: segment.size_bytes]))
        violations += _check_segment(segment, found, len(data or b""))
        headers += [header for _, header in found]
    violations += _check_epochs(log, headers)
    if log.are_producers_known:
        violations += _check_producers(log, headers, was_cut=was_cut)
        violations += _check_transactions(log, headers)
    violations += _check_chain(log)
    return violations


def _check_segment(
    segment: Segment, found: list[tuple[int, BatchHeader]], file_bytes: int
) -> list[str]:
    path, end_bytes = segment.key.path, 0
    if found:
        end_bytes = found[-1][0] + found[-1][1].size_bytes
    if end_bytes != segment.size_bytes or file_bytes < segment.size_bytes:
        return [f"segment_bytes: {path} has batches up to {end_bytes} of {segment.size_bytes}"]
    violations = []
    last = found[-1][1].next_offset if found else segment.base_offset
    if segment.is_compacted:
        is_end_right = last <= segment.next_offset
    else:
        is_end_right = last == segment.next_offset
    if not is_end_right:
        violations.append(f"segment_end: {path} ends at {last}, not {segment.next_offset}")
    with_records = [header for _, header in found if header.record_count]
    highest = max((header.max_timestamp for header in with_records), default=-1)
    if highest != segment.max_timestamp:
        violations.append(f"max_timestamp: {path}: {segment.max_timestamp} instead of {highest}")
    if segment.index is not None:
        entries = _index_entries(found)
        if segment.index.entries() != entries:
            violations.append(
                f"index_differs: {path}: {segment.index.entries()} instead of {entries}"
            )
    return violations


def _index_entries(found: list[tuple[int, BatchHeader]]) -> list[tuple[int, int, int]]:
    """The first batch, and each that begins an interval or more behind the last entry."""
    entries: list[tuple[int, int, int]] = []
    highest = -1
    for position, header in found:
        if not entries or position - entries[-1][1] >= INTERVAL_BYTES:
            entries.append((header.base_offset, position, highest))
        highest = max(highest, header.max_timestamp)
    return entries


def _check_epochs(log: PartitionLog, headers: list[BatchHeader]) -> list[str]:
    """What the batches tell is known; of what was trimmed or compacted away more may be known."""
    starts = [(start.epoch, start.start_offset) for start in log.leader_epochs.starts]
    if starts != sorted(starts):
        return [f"epochs_differ: {log.key}: {starts} do not ascend"]
    for header in headers:
        if header.next_offset <= log.log_start_offset:
            continue
        known = log.leader_epochs.epoch_at(max(header.base_offset, log.log_start_offset))
        if known != header.leader_epoch:
            return [
                (
                    f"epochs_differ: {log.key}: offset {header.base_offset} was written in epoch "
                    f"{header.leader_epoch}, {starts} are known"
                )
            ]
    if headers and log.leader_epochs.latest > headers[-1].leader_epoch:
        return [f"epochs_differ: {log.key}: nothing was written in the last of {starts}"]
    return []


def _check_producers(log: PartitionLog, headers: list[BatchHeader], *, was_cut: bool) -> list[str]:
    """Whoever wrote lately is known by its last batch, and nobody who did not."""
    last: dict[int, BatchHeader] = {}
    for header in headers:
        before = last.get(header.producer_id)
        if header.is_control:
            # With the epoch that a marker carries sequences begin anew.
            last.pop(header.producer_id, None)
        elif (
            header.producer_id >= 0
            and header.base_sequence >= 0
            and (before is None or header.producer_epoch >= before.producer_epoch)
        ):
            last[header.producer_id] = header
    newest = max((header.max_timestamp for header in headers), default=-1)
    for producer_id, header in last.items():
        if newest - header.max_timestamp > EXPIRATION_MS_MIN:
            continue
        producer = log.producers.find(producer_id)
        batch = producer.batches[-1] if producer is not None and producer.batches else None
        if (
            producer is None
            or batch is None
            or (producer.epoch, batch.base_sequence, batch.base_offset)
            != (header.producer_epoch, header.base_sequence, header.base_offset)
        ):
            if was_cut and batch is not None and _was_compacted(log, header, batch.base_offset):
                continue
            return [
                (
                    f"producers_differ: {log.key}: the last batch of {producer_id} is at "
                    f"{header.base_offset}, known is {producer}"
                )
            ]
    for producer in log.producers.producers:
        if any(batch.base_offset >= log.log_end_offset for batch in producer.batches):
            return [f"producers_differ: {log.key}: {producer} wrote behind {log.log_end_offset}"]
    return []


def _check_transactions(log: PartitionLog, headers: list[BatchHeader]) -> list[str]:
    """Open is what has no marker behind it; of what was trimmed more may be known."""
    started: dict[int, int] = {}
    for header in headers:
        if header.is_transactional and header.is_control:
            started.pop(header.producer_id, None)
        elif header.is_transactional:
            started.setdefault(header.producer_id, header.base_offset)
    begin = log.segments[0].base_offset if log.segments else log.log_end_offset
    live = dict(log.transactions.started)
    told = {producer_id: first for producer_id, first in live.items() if first >= begin}
    unknown = [producer_id for producer_id in started if producer_id not in live]
    if unknown or any(started.get(producer_id) != first for producer_id, first in told.items()):
        return [f"transactions_differ: {log.key}: {live} are open, by its batches {started}"]
    return []


def _was_compacted(log: PartitionLog, header: BatchHeader, known_offset: int) -> bool:
    """Whether the log knows of a later batch that a compaction has dropped: one behind it, by which
    the producer was known then, went with the cut."""
    if known_offset <= header.base_offset:
        return False
    return any(
        each.is_compacted and each.base_offset <= known_offset < each.next_offset
        for each in log.segments
    )


def _check_chain(log: PartitionLog) -> list[str]:
    chain = (log.log_start_offset, log.high_watermark, log.log_end_offset)
    if list(chain) != sorted(chain):
        return [f"offset_order: {log.key}: {chain}"]
    expected = None
    for segment in log.segments:
        if expected is not None and segment.base_offset != expected:
            return [
                (
                    f"segment_gap: {log.key}: a segment begins at {segment.base_offset}, "
                    f"the one before ends at {expected}"
                )
            ]
        expected = segment.next_offset
    if log.segments and log.segments[0].base_offset > log.log_start_offset:
        return [f"lost_head: {log.key}: the first segment begins behind {log.log_start_offset}"]
    return []


class Derived:
    """What a log had derived at some moment, to be held against what a start derives anew."""

    def __init__(self, log: PartitionLog) -> None:
        self.log_start_offset = log.log_start_offset
        self.log_start_epoch = log.log_start_epoch
        self.log_end_offset = log.log_end_offset
        self.starts = log.leader_epochs.starts
        self.producers = log.producers.copy()
        self.segments = {
            segment.key: (
                segment.next_offset,
                segment.size_bytes,
                segment.max_timestamp,
                segment.index.entries() if segment.index is not None else None,
            )
            for segment in log.segments
        }

    def compare(self, rebuilt: "Derived", name: str) -> list[str]:
        """What differs, as violations; only for logs that end at the same offset."""
        if self.log_end_offset != rebuilt.log_end_offset:
            return []
        violations = []
        start, epoch = self.log_start_offset, self.log_start_epoch
        has_lost_epoch = epoch not in (UNKNOWN_EPOCH, rebuilt.log_start_epoch)
        if rebuilt.log_start_offset == start and has_lost_epoch:
            violations.append(
                f"rebuilt_start: {name}: {start} was moved in epoch {rebuilt.log_start_epoch}, "
                f"it was known to be {epoch}"
            )
        begin = max(self.log_start_offset, rebuilt.log_start_offset)
        end = self.log_end_offset
        live_starts = _trimmed(self.starts, begin, end)
        made_starts = _trimmed(rebuilt.starts, begin, end)
        if live_starts != made_starts:
            violations.append(f"rebuilt_epochs: {name}: {made_starts}, it had {live_starts}")
        live_producers = _kept(self.producers, begin)
        made_producers = _kept(rebuilt.producers, begin)
        if live_producers != made_producers:
            violations.append(
                f"rebuilt_producers: {name}: {made_producers}, it had {live_producers}"
            )
        for key, live in self.segments.items():
            made = rebuilt.segments.get(key)
            if made is None:
                continue
            is_index_alike = live[3] is None or made[3] is None or live[3] == made[3]
            if live[:3] != made[:3] or not is_index_alike:
                violations.append(f"rebuilt_segment: {key.path}: {made}, it was {live}")
        return violations


def _trimmed(starts: tuple[EpochStart, ...], begin: int, end: int) -> list[tuple[int, int]]:
    """From the epoch on that wrote the log's first record; none of a log without records."""
    first = max((start.start_offset for start in starts if start.start_offset <= begin), default=0)
    return [
        (start.epoch, max(start.start_offset, begin))
        for start in starts
        if first <= start.start_offset and max(start.start_offset, begin) < end
    ]


def _kept(producers: ProducerState, begin: int) -> dict[int, tuple[object, ...]]:
    """What the log still holds of each producer: what was trimmed may be known or not."""
    kept: dict[int, tuple[object, ...]] = {}
    for producer in producers.producers:
        batches = tuple(batch for batch in producer.batches if batch.base_offset >= begin)
        if batches:
            kept[producer.producer_id] = (producer.epoch, batches)
    return kept

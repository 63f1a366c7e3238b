"""A log of sealed segments in memory: what compaction is tried on, and what is asked of it."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tidelog.broker.log.compaction.contract import (
    CompactArguments,
    CompactResult,
    Replacement,
    decode_result,
    encode_arguments,
)
from tidelog.broker.log.compaction.planner import (
    CompactionPlan,
    CompactionSettings,
    plan_compaction,
)
from tidelog.broker.log.jobs.compact import compact
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import UNFINISHED_SUFFIX, SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import (
    PRODUCERS,
    TRANSACTIONS,
    find_section,
    has_transactions,
)
from tidelog.broker.log.sidecar.contents import Summary
from tidelog.broker.log.transactions.aborted import AbortedTransaction, encode_aborted
from tidelog.broker.log.transactions.of_segment import SegmentTransactions
from tidelog.wire.batch import (
    BatchHeader,
    Codec,
    DecodedRecord,
    RecordTuple,
    decode_batch,
    encode_batch,
    iterate_headers,
    stamp,
)
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.ids import Offset, PartitionId, PartitionKey, TopicId

PARTITION = PartitionKey(TopicId(bytes(range(16))), PartitionId(3))
EAGER = CompactionSettings(min_cleanable_dirty_ratio=0.0, delete_retention_ms=1_000)


class MemoryFiles:
    """JobFiles that notes what was flushed."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.created: set[str] = set()
        self.flushed: dict[str, int] = {}
        self.longest_read = 0

    def size_bytes(self, path: str) -> int:
        return len(self.files[path]) if path in self.files else -1

    def read(self, path: str, byte_position: int, length_bytes: int) -> bytes:
        self.longest_read = max(self.longest_read, length_bytes)
        return bytes(self.files[path][byte_position : byte_position + length_bytes])

    def create(self, path: str) -> None:
        self.files[path] = bytearray()
        self.created.add(path)

    def append(self, path: str, pieces: Sequence[bytes | bytearray | memoryview]) -> None:
        assert path in self.created, f"the job did not create {path}"
        for piece in pieces:
            self.files[path] += piece

    def flush(self, path: str) -> None:
        assert path in self.created, f"the job did not create {path}"
        self.flushed[path] = len(self.files[path])

    def remove(self, path: str) -> None:
        assert path in self.created, f"the job did not create {path}"
        self.created.remove(path)
        del self.files[path]


class CompactedLog:
    """Sealed segments; the open one is not its affair."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.segments: list[Summary] = []
        self.producers = ProducerState()
        self.epochs: tuple[EpochStart, ...] = ()
        self.worked: list[int] = []
        self.bound_offset: int | None = None
        """The last stable offset; None: no transaction is open."""
        self.aborted_behind: list[AbortedTransaction] = []
        """By markers behind the sealed segments."""

    @property
    def next_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else 0

    def seal(self, batches: Sequence[bytes], *, has_gaps: bool = False) -> Summary:
        """One more segment of these batches, which have their offsets."""
        key = SegmentKey(PARTITION, Offset(self.next_offset))
        facts = SegmentFacts(key=key, epochs_before=self.epochs, is_contiguous=not has_gaps)
        builder = SidecarBuilder(facts, self.producers)
        data = b"".join(batches)
        builder.feed(data)
        summary, sidecar = builder.finish()
        self.files.files[key.path] = bytearray(data)
        self.files.files[key.sidecar_path] = bytearray(sidecar)
        self.segments.append(summary)
        self.epochs = summary.leader_epochs
        self.producers = self.producers_behind(summary)
        return summary

    def plan(
        self,
        settings: CompactionSettings = EAGER,
        *,
        now_ms: int = 10_000,
        may_expire: bool = True,
    ) -> CompactionPlan | None:
        return plan_compaction(
            self.segments,
            settings,
            now_ms=now_ms,
            may_expire=may_expire,
            bound_offset=self.next_offset if self.bound_offset is None else self.bound_offset,
        )

    def with_aborted(self, arguments: CompactArguments) -> CompactArguments:
        """As whoever schedules a round tells it."""
        return replace(arguments, aborted=encode_aborted(self.aborted()))

    def aborted(self) -> list[AbortedTransaction]:
        """All that are told."""
        sealed = [each for summary in self.segments for each in self.aborted_in(summary)]
        return [*sealed, *self.aborted_behind]

    def aborted_in(self, summary: Summary) -> list[AbortedTransaction]:
        """As the segment's sidecar tells."""
        if not has_transactions(summary):
            return []
        section = find_section(summary, TRANSACTIONS)
        data = self.files.files[summary.key.sidecar_path]
        end = section.byte_position + section.length_bytes
        told = SegmentTransactions.decode(bytes(data[section.byte_position : end]), where="a test")
        return told.aborted.entries()

    def run(self, arguments: CompactArguments) -> CompactResult:
        """The job alone: nothing is swapped."""
        self.worked = []
        job = compact(self.files, encode_arguments(arguments))
        while True:
            try:
                self.worked.append(next(job))
            except StopIteration as ended:
                return decode_result(ended.value)

    def compact(
        self,
        settings: CompactionSettings = EAGER,
        *,
        now_ms: int = 10_000,
        groups_max: int = 1_000_000,
        may_expire: bool = True,
    ) -> CompactResult | None:
        """A round, if one is due; a crash comes after `groups_max` groups were swapped in."""
        plan = self.plan(settings, now_ms=now_ms, may_expire=may_expire)
        if plan is None:
            return None
        result = self.run(self.with_aborted(plan.arguments))
        for replacement in result.replacements[:groups_max]:
            self.swap(replacement)
        for path in [path for path in self.files.files if path.endswith(UNFINISHED_SUFFIX)]:
            del self.files.files[path]
        return result

    def swap(self, replacement: Replacement) -> None:
        """As the node does."""
        made, files = replacement.made, self.files
        for unfinished, path in (
            (replacement.unfinished_sidecar_path, made.key.sidecar_path),
            (replacement.unfinished_log_path, made.key.path),
        ):
            assert path not in files.files, f"{path} is a name for other bytes"
            assert files.flushed[unfinished] == len(files.files[unfinished]), "not flushed"
            files.files[path] = files.files.pop(unfinished)
        removed = replacement.removed
        at = [each.key for each in self.segments].index(removed[0])
        replaced = self.segments[at : at + len(removed)]
        assert tuple(each.key for each in replaced) == removed, "neighbours are replaced"
        self.segments[at : at + len(removed)] = [made]
        for key in removed:
            del files.files[key.path], files.files[key.sidecar_path]

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """All of them, with the chain of offsets checked."""
        expected = 0
        for summary in self.segments:
            assert summary.base_offset == expected, "segments are neighbours"
            data = bytes(self.files.files[summary.key.path])
            header = None
            for position, header in iterate_headers(data, is_compacted=True):
                assert header.base_offset >= expected, "offsets ascend"
                expected = header.next_offset
                yield header, data[position : position + header.size_bytes]
            assert header is not None, "a segment has a batch"
            assert header.next_offset == summary.next_offset, "the last batch stays"

    def records(self, start_offset: int = 0) -> list[DecodedRecord]:
        """What a reader from there on sees."""
        return [
            record
            for header, data in self.batches()
            if header.next_offset > start_offset and not header.is_control
            for record in decode_batch(data, is_compacted=True)
            if record[0] >= start_offset
        ]

    def producers_behind(self, summary: Summary) -> ProducerState:
        """As the segment's sidecar tells."""
        (section,) = (each for each in summary.sections if each.name == PRODUCERS)
        data = self.files.files[summary.key.sidecar_path]
        end = section.byte_position + section.length_bytes
        return ProducerState.decode(bytes(data[section.byte_position : end]))


def marker(
    base_offset: int,
    producer_id: int,
    *,
    is_abort: bool = False,
    producer_epoch: int = 1,
    timestamp_ms: int = 1_000,
) -> bytes:
    """The end of a transaction, as a coordinator's leader writes it."""
    kind = MarkerType.ABORT if is_abort else MarkerType.COMMIT
    data = bytearray(
        encode_marker(
            Marker(kind, 0),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=timestamp_ms,
        )
    )
    stamp(data, 0, base_offset=base_offset, leader_epoch=0)
    return bytes(data)


def keyed(key: str, value: str | None, timestamp_ms: int = 1_000) -> RecordTuple:
    return (timestamp_ms, key.encode(), None if value is None else value.encode(), ())


def batch(
    records: Sequence[RecordTuple],
    base_offset: int,
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    return encode_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def log_of(*segments: Sequence[Sequence[RecordTuple]], codec: Codec = Codec.NONE) -> CompactedLog:
    """Each segment a list of batches, each batch a list of records."""
    log = CompactedLog()
    for batches in segments:
        base_offset = log.next_offset
        sealed = []
        for records in batches:
            sealed.append(batch(records, base_offset, codec=codec))
            base_offset += len(records)
        log.seal(sealed)
    return log


def shown(records: Sequence[DecodedRecord]) -> list[str]:
    """`offset key=value`, for comparing at a glance."""
    return [f"{offset} {_text(key)}={_text(value)}" for offset, _, _, key, value, _ in records]


def _text(content: bytes | None) -> str:
    return "-" if content is None else content.decode()

"""The job that seals a segment: verifies all of it and writes its sidecar. Stop 6 of a walk.

Runs in the worker, over `JobFiles`. It reads the segment once, in order, and holds one piece of it.
It must never write anything but `<stem>.sidecar.new`, which is flushed before the job ends; the
node renames it. The same job makes a sidecar that is missing or damaged again; of a compacted
segment's it takes over what nothing else can tell.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.names import UNFINISHED_SUFFIX, SegmentKey
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import LEADER_EPOCH_MAX, SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.broker.log.sidecar.files import feed_segment, read_before, read_producers, read_summary
from tidelog.ports.worker import JobFiles
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_OFFSET, Offset

SEAL_JOB: Final = "tidelog.broker.log.jobs.seal:seal"


class SealArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which segment, and what its bytes do not say."""

    segment: SegmentKey
    next_offset: Offset = NO_OFFSET
    """Where it must end; -1: wherever it does."""
    size_bytes: int = -1
    """How long its file must be; -1: however long it is."""
    previous: SegmentKey | None = None
    """The segment before it, whose sidecar tells leader epochs and producers; None or a sidecar
    that is not there: they begin with this segment."""
    producers_before: bytes = b""
    """The encoded state at its beginning, where the segment before it is there no more."""
    is_contiguous: bool = True
    leader_epoch_max: int = LEADER_EPOCH_MAX
    cleaned_below: int = 0
    leader_epochs: tuple[EpochStart, ...] | None = None
    """Of a compacted segment: the history up to its end, which its own batches cannot tell."""
    replaces: tuple[Replaced, ...] = ()


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    summary: Summary | None
    """None: nothing was written, because the previous sidecar is damaged."""
    sidecar_bytes: int = 0
    are_producers_forgotten: bool = False
    """The segment is compacted, and its old sidecar could not tell of producers any more."""
    previous_damage: str = ""
    """What is wrong with the previous sidecar: that one has to be made again first."""


_arguments_decoder: Final = msgspec.msgpack.Decoder(SealArguments)
_result_decoder: Final = msgspec.msgpack.Decoder(Sealed)


def encode_arguments(arguments: SealArguments) -> bytes:
    """For `Worker.run`."""
    return msgspec.msgpack.encode(arguments)


def decode_result(result: bytes) -> Sealed:
    """What `Worker.run` has returned."""
    return _result_decoder.decode(result)


def unfinished_path(key: SegmentKey) -> str:
    """What the job writes; `key.sidecar_path` is what it is renamed to."""
    return key.sidecar_path + UNFINISHED_SUFFIX


def seal(files: JobFiles, arguments: bytes) -> Generator[int, None, bytes]:
    """`SealArguments` → `Sealed`; STORAGE_CORRUPT names file and byte if the segment is damaged."""
    asked = _arguments_decoder.decode(arguments)
    try:
        before = yield from read_before(files, asked.previous, asked.segment.base_offset)
    except TidelogError as error:
        if error.code is not ErrorCode.STORAGE_CORRUPT:
            raise
        return msgspec.msgpack.encode(Sealed(summary=None, previous_damage=str(error)))
    facts = SegmentFacts(
        key=asked.segment,
        is_contiguous=asked.is_contiguous,
        next_offset=asked.next_offset,
        leader_epoch_max=asked.leader_epoch_max,
        epochs_before=before[0] if asked.leader_epochs is None else (),
        epochs_at_end=asked.leader_epochs,
        cleaned_below=asked.cleaned_below,
        replaces=asked.replaces,
    )
    producers = before[1]
    if asked.previous is None and asked.producers_before:
        producers = ProducerState.decode(asked.producers_before)
    builder = SidecarBuilder(facts, producers)
    yield from feed_segment(files, builder, asked.segment, asked.size_bytes)
    are_producers_forgotten = False
    if asked.leader_epochs is not None:
        kept = yield from _kept_producers(files, builder, asked.segment)
        builder.know_producers(kept)
        are_producers_forgotten = kept is None
    summary, data = builder.finish()
    path = unfinished_path(asked.segment)
    files.create(path)
    files.append(path, [data])
    files.flush(path)
    yield len(data)
    return msgspec.msgpack.encode(
        Sealed(
            summary=summary,
            sidecar_bytes=len(data),
            are_producers_forgotten=are_producers_forgotten,
        )
    )


def _kept_producers(
    files: JobFiles, builder: SidecarBuilder, key: SegmentKey
) -> Generator[int, None, ProducerState | None]:
    """What the compacted segment's old sidecar tells of producers, if that much of it is whole:
    batches that were dropped have made them, so nothing else can tell. A read that failed in
    passing, or a bit elsewhere in the file, must not cost it."""
    try:
        summary = read_summary(files, key)
        if summary is None:
            return None
        producers = yield from read_producers(files, summary)
    except TidelogError:
        return None
    is_same = (summary.next_offset, summary.size_bytes) == (
        builder.next_offset,
        builder.verified_bytes,
    )
    return producers if is_same else None

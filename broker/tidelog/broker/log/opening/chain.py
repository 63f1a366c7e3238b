"""Which files of a partition are its log: one generation for each offset. Pure.

Owns the choice among what a crash may leave side by side. It must never choose a segment that a
compaction has replaced while the one in its place is whole, nor call a file a leftover for which
nothing else stands.

Theory of operation. Three hand-overs may have been cut off anywhere, each rename or removal kept
or lost by itself:

    compaction    the new sidecar and log are renamed to names of a higher generation; once that is
                  durable the old segments go. A new segment whose sidecar is believed supersedes
                  those that it names, and all of lower generations inside its range. One without
                  a sidecar counts for nothing as long as older segments begin where it does.
    trim          LOG_START is durable before a segment goes. What lies wholly below it may be
                  there or not, with holes; the first segment that counts begins at or below it.
    truncation    segments go from the last one on, each removal durable before the next: what is
                  left has no hole.

From the segment that holds the log's start on, each begins where the one before it ends. A hole is
corruption: it is never bridged, and nothing behind it is touched.
"""

from itertools import groupby

import msgspec

from tidelog.broker.log.names import (
    SIDECAR_SUFFIX,
    UNFINISHED_SUFFIX,
    SegmentKey,
    parse_segment_name,
)
from tidelog.broker.log.sidecar.contents import Replaced, Summary
from tidelog.wire.ids import PartitionKey


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The names in a partition's directory, told apart."""

    segments: tuple[SegmentKey, ...]
    sidecars: tuple[SegmentKey, ...]
    """Of these segments, whether those are there or not."""
    unfinished: tuple[str, ...]
    """Names; what a job or a hand-over had not finished."""
    strangers: tuple[str, ...]
    """Names that are not ours."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that is there."""

    key: SegmentKey
    summary: Summary | None = None
    """Of a sidecar that can be believed and fits the segment's length."""
    next_offset: int | None = None
    """Where it ends, if that is known."""

    @property
    def is_proven(self) -> bool:
        """Whether its sidecar tells what is in it."""
        return self.summary is not None


class Leftover(msgspec.Struct, frozen=True):
    """A segment that does not count any more, or never did."""

    found: Found
    stand_in: Found
    """What counts where it begins."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, in the order of offsets."""

    segments: tuple[Found, ...]
    below: tuple[Found, ...]
    """Wholly below the log's start, of whatever generation."""
    leftovers: tuple[Leftover, ...]


def tell_apart(partition: PartitionKey, names: list[str]) -> Listing:
    """Sort the names of a partition's directory by what they are."""
    segments: list[SegmentKey] = []
    sidecars: list[SegmentKey] = []
    unfinished: list[str] = []
    strangers: list[str] = []
    for name in names:
        finished = name.removesuffix(UNFINISHED_SUFFIX)
        is_sidecar = finished.endswith(SIDECAR_SUFFIX)
        stem = finished.removesuffix(SIDECAR_SUFFIX) + ".log" if is_sidecar else finished
        parsed = parse_segment_name(stem)
        if parsed is None:
            strangers.append(name)
        elif finished != name:
            unfinished.append(name)
        else:
            (sidecars if is_sidecar else segments).append(SegmentKey(partition, *parsed))
    return Listing(
        segments=tuple(sorted(segments)),
        sidecars=tuple(sorted(sidecars)),
        unfinished=tuple(unfinished),
        strangers=tuple(strangers),
    )


def choose(found: list[Found], log_start_offset: int) -> Chain:
    """One segment for each base offset, none that another stands for."""
    chosen: list[Found] = []
    leftovers: list[Leftover] = []
    ascending = sorted(found, key=lambda each: each.key.base_offset)
    for base_offset, group in groupby(ascending, key=lambda each: each.key.base_offset):
        candidates = sorted(group, key=_preference)
        last = chosen[-1] if chosen else None
        if last is not None and last.next_offset is not None and base_offset < last.next_offset:
            replaced = [each for each in candidates if _stands_for(last, each)]
            leftovers += [Leftover(each, last) for each in replaced]
            candidates = [each for each in candidates if each not in replaced]
        if candidates:
            chosen.append(candidates[0])
            leftovers += [Leftover(each, candidates[0]) for each in candidates[1:]]
    return _from_log_start(chosen, leftovers, log_start_offset)


def _preference(found: Found) -> tuple[int, int]:
    """The highest generation of which the sidecar is believed; then as it was appended; then a
    compacted segment of which nothing is known: it counts if nothing else begins there."""
    generation = found.key.generation
    if found.is_proven and generation:
        return (0, -generation)
    return (1, 0) if not generation else (2, -generation)


def _stands_for(new: Found, old: Found) -> bool:
    if new.summary is not None:
        replaced = Replaced(old.key.base_offset, old.key.generation)
        if replaced in new.summary.replaces:
            return True
    return new.key.generation > old.key.generation


def _from_log_start(chosen: list[Found], leftovers: list[Leftover], log_start_offset: int) -> Chain:
    first = 0
    for place, each in enumerate(chosen):
        if each.key.base_offset <= log_start_offset:
            first = place
    below = chosen[:first]
    below += [each.found for each in leftovers if each.stand_in in below]
    return Chain(
        segments=tuple(chosen[first:]),
        below=tuple(below),
        leftovers=tuple(each for each in leftovers if each.stand_in not in below),
    )

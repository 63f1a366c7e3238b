"""The manifest of a publish: what each target receives, from where, under which sequences. Pure.

Owns the order of records: within a target first by token, then as each writer has staged. It must
never depend on anything but footers and their order: a coordinator that takes over makes the same
manifest from what is persisted, and a leader that is asked twice appends once.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tidelog.broker.staged.footer import Footer, StagedTarget
from tidelog.broker.staged.limits import (
    PUBLISH_BYTES_MAX,
    RANGES_PER_REQUEST_MAX,
    SEQUENCES,
    TARGETS_MAX,
    TOKENS_MAX,
)
from tidelog.broker.staged.token import StageId, Token
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey
from tidelog.wire.refusals import invalid


class StagedRange(msgspec.Struct, frozen=True):
    """What one writer has staged for one target, and where."""

    staging_partition: PartitionId
    stage_id: StageId
    target: StagedTarget


class Portion(msgspec.Struct, frozen=True):
    """What a leader is asked to append in one call."""

    key: PartitionKey
    first_sequence: int
    ranges: tuple[StagedRange, ...]


class Manifest(msgspec.Struct, frozen=True):
    """All of one publish."""

    sink_id: str
    batch_id: int
    ranges: dict[PartitionKey, tuple[StagedRange, ...]]
    """Of each target, in the order in which they are appended; targets in ascending order."""

    @property
    def size_bytes(self) -> int:
        """Of all batches."""
        return sum(each.target.size_bytes for part in self.ranges.values() for each in part)

    @property
    def record_count(self) -> int:
        """Of all batches."""
        return sum(each.target.record_count for part in self.ranges.values() for each in part)

    def portions(self, *, ranges_max: int = RANGES_PER_REQUEST_MAX) -> Iterator[Portion]:
        """What to ask the leaders for: of one target one portion after the other."""
        for key, ranges in self.ranges.items():
            sequence = 0
            for first in range(0, len(ranges), ranges_max):
                part = ranges[first : first + ranges_max]
                yield Portion(key, sequence, part)
                records = sum(each.target.record_count for each in part)
                sequence = (sequence + records) % SEQUENCES


def manifest_of(
    sink_id: str,
    batch_id: int,
    staged: Sequence[tuple[Token, Footer]],
    *,
    max_bytes: int = 0,
    limit_bytes: int = PUBLISH_BYTES_MAX,
) -> Manifest:
    """Of verified footers in the order of their tokens; a typed error for what cannot be published.

    `max_bytes`: the caller's own bound; 0: the cluster's.
    """
    tried = f"publish batch {batch_id} of sink {sink_id!r}"
    if len(staged) > TOKENS_MAX:
        raise invalid(tried, f"{len(staged)} tokens, the limit is {TOKENS_MAX}")
    seen: dict[StageId, None] = {}
    ranges: dict[PartitionKey, list[StagedRange]] = {}
    for token, footer in staged:
        if footer.stage_id in seen:
            raise invalid(tried, "a token stands there twice", "Name each writer's token once.")
        seen[footer.stage_id] = None
        if (footer.sink_id, footer.batch_id) != (sink_id, batch_id):
            raise invalid(
                tried,
                f"a token is of batch {footer.batch_id} of sink {footer.sink_id!r}",
                "Publish a batch with the tokens that were staged for it.",
            )
        for target in footer.targets:
            found = StagedRange(token.staging_partition, footer.stage_id, target)
            ranges.setdefault(target.key, []).append(found)
    manifest = Manifest(sink_id, batch_id, {key: tuple(ranges[key]) for key in sorted(ranges)})
    if len(ranges) > TARGETS_MAX:
        raise TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=tried,
            happened=f"{len(ranges)} partitions, the limit of a transaction is {TARGETS_MAX}",
        )
    most = min(max_bytes or limit_bytes, limit_bytes)
    if manifest.size_bytes > most:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=tried,
            happened=f"{manifest.size_bytes} bytes are staged, the limit is {most}",
            hint="Make smaller batches: readers of committed records wait for all of one.",
        )
    return manifest


def base_sequences(first_sequence: int, record_counts: Iterable[int]) -> Iterator[int]:
    """Of each batch of a portion: what a leader stamps, whoever asks it and however often."""
    assert 0 <= first_sequence < SEQUENCES, f"{first_sequence} is no sequence"
    sequence = first_sequence
    for count in record_counts:
        yield sequence
        sequence = (sequence + count) % SEQUENCES

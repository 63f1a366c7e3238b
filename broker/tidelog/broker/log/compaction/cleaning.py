"""Which records of a batch stay. Pure.

Owns the rule of one batch:

    at or above cleaned_below   as it is: the map says nothing of it
    marker                      as it is as long as a batch of its transaction is left. Then it gets
                                a delete horizon, and goes behind it
    an aborted batch            no record stays, whatever its key
    records cannot be read      as it is: a client sealed it so (its checksum is right), and only
                                readers find out; it supersedes nothing
    a record stays              if it has a key, the map knows no later record of that key, and it
                                is no tombstone behind its delete horizon
    its last tombstone goes     it has no horizon any more: the base timestamp is a record's again
    no record stays             dropped; but the last batch of a segment, the last one of each
                                producer that the log knows, and the first one of each leader epoch
                                keep their header; a marker in their place stays whole

A replica knows the leader epochs by the headers that it has copied, and judges by them where logs
part. One that was filled from a compacted log without the first header of an epoch would take what
another leader never committed for a part of that log, or let a whole replica be cut.

Rewriting never adds bytes to an uncompressed batch but by the horizon: if a batch is too large with
it, its tombstones get theirs in a later round.
"""

from collections.abc import Sequence
from itertools import compress

import msgspec

from tidelog.broker.log.compaction.offset_map import OffsetMap
from tidelog.broker.log.compaction.rewrite import empty_batch, rewrite_batch
from tidelog.wire.batch import (
    DEFAULT_LIMITS,
    BatchHeader,
    BatchTooLarge,
    CorruptBatch,
    DecodedRecord,
)
from tidelog.wire.batch.decode import decompressed_body, read_records
from tidelog.wire.batch.layout import INT64_MAX
from tidelog.wire.batch.uniform import read_uniform
from tidelog.wire.ids import BytePosition


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it lies in a segment; its checksum was verified."""

    byte_position: BytePosition
    header: BatchHeader
    data: bytes

    def open(self) -> "OpenBatch | None":
        """None: its records contradict the header, or a limit."""
        try:
            body = decompressed_body(self.data, self.header, 0, DEFAULT_LIMITS)
            records = read_uniform(self.header, body)
            if records is None:
                records = read_records(self.header, body, 0, limits=DEFAULT_LIMITS)
        except (CorruptBatch, BatchTooLarge):
            return None
        return OpenBatch(stored=self, body=body, records=records)


class OpenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch with its records."""

    stored: StoredBatch
    body: bytes
    """The records' bytes, decompressed."""
    records: list[DecodedRecord]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Of one round."""

    offsets: OffsetMap
    cleaned_below: int
    now_ms: int
    delete_retention_ms: int
    may_expire: bool
    needed_base_offsets: frozenset[int]
    """The last batches of the producers that the log knows, and the first ones of leader epochs."""

    @property
    def horizon_ms(self) -> int:
        """What tombstones that this round sees first get."""
        return min(self.now_ms + self.delete_retention_ms, INT64_MAX)


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a batch."""

    data: bytes
    """Empty: it is dropped."""
    records_kept: int
    is_unreadable: bool = False


def note_keys(offsets: OffsetMap, batch: StoredBatch) -> bool:
    """Put a dirty batch's keys into the map; False: they do not fit. One that was aborted must not
    come here: it supersedes nothing."""
    if batch.header.is_control:
        return True
    opened = batch.open()
    keyed = [each for each in opened.records if each[3] is not None] if opened else []
    return offsets.note([each[3] or b"" for each in keyed], [each[0] for each in keyed])


def clean_marker(
    batch: StoredBatch, rules: Rules, *, is_last: bool, are_batches_gone: bool
) -> Cleaned:
    """Apply the rule to a marker. A horizon that it has tells that its batches were gone when an
    earlier round gave it."""
    header = batch.header
    kept = Cleaned(data=batch.data, records_kept=header.record_count)
    if header.next_offset > rules.cleaned_below or not rules.may_expire:
        return kept
    is_needed = is_last or header.base_offset in rules.needed_base_offsets
    if not header.has_delete_horizon:
        # One that is needed gets none, or its segment would be looked at for it again and again.
        is_dying = are_batches_gone and not is_needed
        return _with_horizon(batch, rules.horizon_ms) if is_dying else kept
    if header.base_timestamp > rules.now_ms:
        return kept
    return _with_horizon(batch, None) if is_needed else Cleaned(data=b"", records_kept=0)


def _with_horizon(batch: StoredBatch, horizon_ms: int | None) -> Cleaned:
    """A marker with this horizon, or with none."""
    opened = batch.open()
    assert opened is not None, "a segment with a marker that is none is damaged"
    data = _rewritten(
        opened,
        (True,),
        opened.records,
        base_timestamp=opened.records[0][1] if horizon_ms is None else horizon_ms,
        has_horizon=horizon_ms is not None,
    )
    assert data is not None, f"a marker of {len(batch.data)} bytes is not too large"
    return Cleaned(data=data, records_kept=batch.header.record_count)


def clean_batch(
    batch: StoredBatch, rules: Rules, *, is_last: bool, is_aborted: bool = False
) -> Cleaned:
    """Apply the rule to a batch of records. `is_last`: nothing follows it in the segment that is
    being made."""
    header = batch.header
    if header.next_offset > rules.cleaned_below:
        return Cleaned(data=batch.data, records_kept=header.record_count)
    if is_aborted:
        is_needed = is_last or header.base_offset in rules.needed_base_offsets
        return Cleaned(data=_emptied(batch) if is_needed else b"", records_kept=0)
    opened = batch.open()
    if opened is None:
        return Cleaned(data=batch.data, records_kept=header.record_count, is_unreadable=True)
    kept = _kept(header, opened.records, rules)
    if not any(kept):
        is_needed = is_last or header.base_offset in rules.needed_base_offsets
        return Cleaned(data=_emptied(batch) if is_needed else b"", records_kept=0)
    return _with_records(opened, kept, rules)


def _kept(header: BatchHeader, records: Sequence[DecodedRecord], rules: Rules) -> list[bool]:
    """For each record whether it stays."""
    # The base timestamp is the horizon.
    is_past = header.has_delete_horizon and header.base_timestamp <= rules.now_ms
    is_dead = rules.may_expire and is_past
    # A record without key gets the latest offset of the empty key, and goes for having none.
    latest = rules.offsets.latest([record[3] or b"" for record in records])
    return [
        key is not None and offset >= last and not (is_dead and value is None)
        for (offset, _, _, key, value, _), last in zip(records, latest, strict=True)
    ]


def _with_records(opened: OpenBatch, kept: Sequence[bool], rules: Rules) -> Cleaned:
    header = opened.stored.header
    left = list(compress(opened.records, kept))
    has_tombstone = any(record[4] is None for record in left)
    is_new = has_tombstone and not header.has_delete_horizon
    # A horizon that a wrong clock gives is looked at by a right one later: a later round gives it.
    if is_new and rules.may_expire:
        data = _rewritten(opened, kept, left, base_timestamp=rules.horizon_ms, has_horizon=True)
        if data is not None:
            return Cleaned(data=data, records_kept=len(left))
    if len(left) == len(kept):
        return Cleaned(data=opened.stored.data, records_kept=len(left))
    has_horizon = header.has_delete_horizon and has_tombstone
    loses_horizon = header.has_delete_horizon and not has_tombstone
    base_timestamp = left[0][1] if loses_horizon else header.base_timestamp
    data = _rewritten(opened, kept, left, base_timestamp=base_timestamp, has_horizon=has_horizon)
    if data is None:
        raise _too_large(opened.stored, len(left))
    return Cleaned(data=data, records_kept=len(left))


def _rewritten(
    opened: OpenBatch,
    kept: Sequence[bool],
    left: Sequence[DecodedRecord],
    *,
    base_timestamp: int,
    has_horizon: bool,
) -> bytes | None:
    return rewrite_batch(
        opened.stored.header,
        opened.body,
        kept,
        max_timestamp=max(record[1] for record in left),
        base_timestamp=base_timestamp,
        has_horizon=has_horizon,
    )


def _emptied(batch: StoredBatch) -> bytes:
    return batch.data if batch.header.record_count == 0 else empty_batch(batch.header)


def _too_large(batch: StoredBatch, count: int) -> BatchTooLarge:
    """Sealed by a compressor that packs tighter than ours, close to the limit."""
    return BatchTooLarge(
        tried=f"compact the batch at byte {batch.byte_position} "
        f"(base offset {batch.header.base_offset})",
        happened=f"{count} of its {batch.header.record_count} records compress to more than "
        "a batch may have",
        hint="Its partition is not compacted while it is there; seal smaller batches.",
    )

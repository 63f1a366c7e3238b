"""Batches as they come from the disk, each held against what is known of it. Pure.

Every batch is verified before it is served: its own checksum covers what lies behind it in the
header and the records; base offset, length and leader epoch lie outside, so they are held against
the batch before it, the segment's end and the log's leader epochs. Where compaction has left gaps
a wrong base offset could hide in one: there the blocks' digests are verified as well (`read`).
Stop 10 of a record's walk.
"""

import struct
from typing import Final

from tidelog.broker.log.leader_epochs import LeaderEpochs
from tidelog.broker.log.reading.plan import ReadPlan
from tidelog.broker.log.state.recovery import corruption
from tidelog.wire.batch import HEADER_BYTES, MAGIC, checksum
from tidelog.wire.batch.layout import ATTRIBUTES_POSITION, PREFIX_BYTES
from tidelog.wire.errors import TidelogError

_PLACE: Final = struct.Struct(">qiibI2xi")
"""Of a header: base offset, length, leader epoch, magic, checksum, last offset delta."""
_UNKNOWN_EPOCH: Final = -1


class Walk:
    """From batch to batch through read bytes. `peek` looks at a header, `step` goes behind it."""

    __slots__ = (
        "_checksum",
        "_epoch",
        "_epoch_end",
        "_epochs",
        "_log_start_offset",
        "_plan",
        "base_offset",
        "data",
        "end_offset",
        "next_offset",
        "position",
        "size_bytes",
    )

    def __init__(
        self, plan: ReadPlan, data: bytes, epochs: LeaderEpochs, log_start_offset: int
    ) -> None:
        self.data = data
        self.position = 0
        """Where the next batch begins in the data."""
        self.next_offset = plan.base_offset
        """The base offset that it must have; with gaps, at least."""
        self.base_offset = plan.base_offset
        """Of the batch that `peek` looked at; so are the next two."""
        self.end_offset = plan.base_offset
        self.size_bytes = 0
        self._checksum = 0
        self._plan = plan
        self._epochs = epochs
        self._epoch = _UNKNOWN_EPOCH
        self._epoch_end = -1
        self._log_start_offset = log_start_offset

    def peek(self) -> bool:
        """Look at the next batch; False if the data end before its header does."""
        position = self.position
        left = self._plan.readable_bytes - position
        if position + HEADER_BYTES > len(self.data):
            if 0 < left < HEADER_BYTES:
                raise self.damage(f"{left} bytes are no header")
            return False
        base, length, epoch, magic, crc, last_delta = _PLACE.unpack_from(self.data, position)
        if base != self.next_offset and not (self._plan.has_gaps and base > self.next_offset):
            raise self.damage(f"its base offset is {base}, not {self.next_offset}")
        if magic != MAGIC:
            raise self.damage(f"its magic is {magic}, not {MAGIC}")
        size_bytes = PREFIX_BYTES + length
        if not HEADER_BYTES <= size_bytes <= left:
            raise self.damage(f"a batch of {size_bytes} bytes cannot lie there")
        last_offset = base + last_delta
        if last_delta < 0 or last_offset >= self._plan.end_offset:
            raise self.damage(f"its last offset is {last_offset}, beyond {self._plan.end_offset}")
        if last_offset >= self._epoch_end:
            self._enter_epoch(last_offset)
        if epoch != self._epoch and last_offset >= self._log_start_offset:
            raise self.damage(f"its leader epoch is {epoch}, not {self._epoch}")
        self.base_offset = base
        self.end_offset = last_offset + 1
        self.size_bytes = size_bytes
        self._checksum = crc
        return True

    @property
    def is_whole(self) -> bool:
        """Whether all of the batch that `peek` looked at is there."""
        return self.position + self.size_bytes <= len(self.data)

    def verify(self) -> None:
        """Hold the whole batch that `peek` looked at against its checksum."""
        start = self.position
        found = checksum(self.data[start + ATTRIBUTES_POSITION : start + self.size_bytes])
        if found != self._checksum:
            raise self.damage(
                f"its checksum is {self._checksum:#010x}, its bytes give {found:#010x}"
            )

    def step(self) -> None:
        """Go behind the batch that `peek` looked at."""
        self.position += self.size_bytes
        self.next_offset = self.end_offset

    def damage(self, happened: str) -> TidelogError:
        """What is raised where a batch contradicts what is known of it."""
        byte_position = self._plan.byte_position + self.position
        return corruption(self._plan.segment.path, byte_position, happened, verb="read")

    def _enter_epoch(self, offset: int) -> None:
        """What was trimmed has no epoch any more; it is skipped and never served."""
        self._epoch = self._epochs.epoch_at(offset)
        _, self._epoch_end = self._epochs.end_offset_of(self._epoch, self._plan.end_offset)

"""Bugs that the skeleton suite must find, in the classes of a node."""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.broker.directory.core import writing
from tidelog.broker.directory.core.messages import AppendBatch
from tidelog.broker.directory.core.state import DirectoryState
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.opening import log as open_log_module
from tidelog.broker.log.opening.log import OpenedLog, open_log
from tidelog.broker.log.state import recovery
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.ports import Disk
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.layout import Buffer
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


def acknowledge_before_flush() -> Substitution:
    """Every produce is answered when it is written, as if it had asked for acks=1."""
    original = writing.on_append

    def on_append(state: DirectoryState, append: AppendBatch) -> None:
        original(state, msgspec.structs.replace(append, is_flush_awaited=False))

    return Substitution(writing, "on_append", on_append)


def recover_past_a_torn_batch() -> Substitution:
    """Recovery believes lengths and counts, and does not compare checksums.

    A reader is told of corruption in what recovery has taken in and flushed.
    """

    def verify_nothing(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
        del buffer, header, position

    return Substitution(recovery, "verify_checksum", verify_nothing)


def reuse_an_offset() -> Substitution:
    """After a start the next batch gets the base offset of the last one in the log."""

    async def open_one_too_low(
        disk: Disk,
        key: PartitionKey,
        leader_epoch: LeaderEpoch,
        marks: PartitionMarks | None,
        **whole: bool,
    ) -> OpenedLog:
        opened = await open_log(disk, key, leader_epoch, marks, **whole)
        log = opened.log
        if log.failure is None and log.log_end_offset > log.log_start_offset:
            log.log_end_offset = Offset(log.log_end_offset - 1)
            log.flushed_offset = log.high_watermark = log.log_end_offset
        return opened

    return Substitution(open_log_module, "open_log", open_one_too_low)


PLANTED: Final[Mapping[str, Plant]] = {
    "acknowledge_before_flush": Plant(
        make=acknowledge_before_flush,
        expected=frozenset({"not_flushed", "lost_write", "unseen", "reused_offset"}),
    ),
    "recover_past_a_torn_batch": Plant(
        make=recover_past_a_torn_batch,
        expected=frozenset({"corrupt_batch", "torn_batch", "false_corruption"}),
    ),
    "reuse_an_offset": Plant(
        make=reuse_an_offset,
        expected=frozenset({"reused_offset", "fresh_offset", "inconsistent_offsets"}),
    ),
}
"""By name; for the runner's `--planted` and the tests."""

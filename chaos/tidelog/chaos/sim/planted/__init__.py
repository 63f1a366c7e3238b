"""Bugs that the simulator must find: planted into a node's classes for as long as a run lasts.

Each one is a substitution made here, in the simulator, and undone at the end; nothing of a node
knows of it and no path of a real node leads here. The suites, seeds and schedules know nothing of
them either: a planted bug counts as found only by the suite as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import msgspec

from tidelog.broker import replicas
from tidelog.broker.log import recovery
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.open_log import OpenedLog, open_log
from tidelog.broker.partition.core import DirectoryCore
from tidelog.broker.partition.messages import AppendBatch, Effect
from tidelog.ports import Disk
from tidelog.wire.batch import BatchHeader
from tidelog.wire.batch.layout import Buffer
from tidelog.wire.ids import LeaderEpoch, Offset


@contextmanager
def _replaced(owner: object, name: str, substitute: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        setattr(owner, name, original)


def acknowledge_before_flush() -> AbstractContextManager[None]:
    """Every produce is answered when it is written, as if it had asked for acks=1."""
    original = DirectoryCore._on_append

    def on_append(self: DirectoryCore, append: AppendBatch, effects: list[Effect]) -> None:
        original(self, msgspec.structs.replace(append, is_flush_awaited=False), effects)

    return _replaced(DirectoryCore, "_on_append", on_append)


def recover_past_a_torn_batch() -> AbstractContextManager[None]:
    """Recovery believes lengths and counts, and does not compare checksums."""

    def verify_nothing(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
        del buffer, header, position

    return _replaced(recovery, "verify_checksum", verify_nothing)


def reuse_an_offset() -> AbstractContextManager[None]:
    """After a start the next batch gets the base offset of the last one in the log."""

    async def open_one_too_low(
        disk: Disk, key: PartitionKey, leader_epoch: LeaderEpoch, known_flushed_offset: int | None
    ) -> OpenedLog:
        opened = await open_log(disk, key, leader_epoch, known_flushed_offset)
        log = opened.log
        if log.failure is None and log.log_end_offset > log.log_start_offset:
            log.log_end_offset = Offset(log.log_end_offset - 1)
            log.flushed_offset = log.high_watermark = log.log_end_offset
        return opened

    return _replaced(replicas, "open_log", open_one_too_low)


PLANTED: Final[Mapping[str, Callable[[], AbstractContextManager[None]]]] = {
    "acknowledge_before_flush": acknowledge_before_flush,
    "recover_past_a_torn_batch": recover_past_a_torn_batch,
    "reuse_an_offset": reuse_an_offset,
}
"""By name; for the runner's `--planted` and the tests."""

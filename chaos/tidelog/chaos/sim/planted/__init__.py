"""Bugs that the simulator must find: planted into a node's classes for as long as a run lasts.

Each one is a substitution made here, in the simulator, and undone at the end; nothing of a node
knows of it and no path of a real node leads here. The suites, seeds and schedules know nothing of
them either: a planted bug counts as found only by the suite as it is, and only by a kind of
violation that its definition expects. A substitute that breaks is no bug of a node: whatever it
raises, other than what a node itself answers with, is remembered and ends the search.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

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
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

NOT_CHECKS: Final = frozenset({"bug", "deadlock", "runaway"})
"""Kinds that a crash inside a substitute would show as well: no plant may expect them."""


class Substitution(msgspec.Struct, frozen=True):
    """What stands in for an attribute of a node's module or class."""

    owner: object
    name: str
    substitute: Callable[..., Any]


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """A bug, and the kinds of violation that say that it was this one."""

    make: Callable[[], Substitution]
    expected: frozenset[str]

    def __post_init__(self) -> None:
        """Only checks may be expected."""
        assert self.expected, "a bug that nothing can show is not found"
        assert not self.expected & NOT_CHECKS, "a crash is not what a check says"


@contextmanager
def planted(plant: Plant) -> Iterator[list[str]]:
    """The bug is there; yields what its substitute raised, one text each, empty if it works."""
    breakages: list[str] = []
    made = plant.make()
    original = getattr(made.owner, made.name)
    setattr(made.owner, made.name, _watched(made.substitute, breakages))
    try:
        yield breakages
    finally:
        setattr(made.owner, made.name, original)


def _watched(substitute: Callable[..., Any], breakages: list[str]) -> Callable[..., Any]:
    """The substitute; an exception that is not one of a node's answers is written down."""

    @contextmanager
    def watching() -> Iterator[None]:
        try:
            yield
        except TidelogError:
            raise
        except Exception as error:
            breakages.append(repr(error))
            raise

    @functools.wraps(substitute)
    async def run_async(*arguments: object, **options: object) -> object:
        with watching():
            return await substitute(*arguments, **options)

    @functools.wraps(substitute)
    def run(*arguments: object, **options: object) -> object:
        with watching():
            return substitute(*arguments, **options)

    return run_async if inspect.iscoroutinefunction(substitute) else run


def acknowledge_before_flush() -> Substitution:
    """Every produce is answered when it is written, as if it had asked for acks=1."""
    original = DirectoryCore._on_append

    def on_append(self: DirectoryCore, append: AppendBatch, effects: list[Effect]) -> None:
        original(self, msgspec.structs.replace(append, is_flush_awaited=False), effects)

    return Substitution(DirectoryCore, "_on_append", on_append)


def recover_past_a_torn_batch() -> Substitution:
    """Recovery believes lengths and counts, and does not compare checksums."""

    def verify_nothing(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
        del buffer, header, position

    return Substitution(recovery, "verify_checksum", verify_nothing)


def reuse_an_offset() -> Substitution:
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

    return Substitution(replicas, "open_log", open_one_too_low)


PLANTED: Final[Mapping[str, Plant]] = {
    "acknowledge_before_flush": Plant(
        make=acknowledge_before_flush,
        expected=frozenset({"not_flushed", "lost_write", "unseen", "reused_offset"}),
    ),
    "recover_past_a_torn_batch": Plant(
        make=recover_past_a_torn_batch,
        expected=frozenset({"corrupt_batch", "torn_batch"}),
    ),
    "reuse_an_offset": Plant(
        make=reuse_an_offset,
        expected=frozenset({"reused_offset", "fresh_offset", "inconsistent_offsets"}),
    ),
}
"""By name; for the runner's `--planted` and the tests."""

"""One data directory at work: its logs from their opening to the clean stop.

Puts together what the parts of a directory need of each other: opening, owner, readers,
housekeeping, checkpoint. It must never decide about a log itself. A directory that fails takes its
own partitions with it and nothing else.

    epoch read ─▶ epoch stored ─▶ survey ─▶ open what is placed here ─▶
    ─▶ run: owner, ticks, housekeeping ─▶ stop: checkpoint
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from tidelog.broker.directory.core.core import FLUSH_INTERVAL_MS
from tidelog.broker.directory.owner.owner import (
    NOBODY_WAITS,
    QUEUED_BYTES_MAX,
    DirectoryOwner,
    LogEvents,
)
from tidelog.broker.housekeeping.core.held import HeldLog
from tidelog.broker.housekeeping.core.limits import DEFAULT_HOUSEKEEPING_LIMITS, HousekeepingLimits
from tidelog.broker.housekeeping.housekeeper import Housekeeper
from tidelog.broker.log.marks.epoch_file import StoredEpoch, read_epoch, write_epoch
from tidelog.broker.log.marks.file import read_marks
from tidelog.broker.log.names import directory_name, parse_directory_name
from tidelog.broker.log.opening.checkpoint import write_checkpoint
from tidelog.broker.log.opening.directory import OpenedDirectory, open_at_work, open_directory
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.broker.log.reading.reader import LogReader
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.shared.events import EventLog
from tidelog.broker.shared.node_time import HouseTime
from tidelog.metadata.directory_epochs import NO_STORED_EPOCH
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import Clock, Disk, TaskScope, Worker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, LeaderEpoch, PartitionKey

NS_PER_MS: Final = 1_000_000
TICK_MS_MAX: Final = 200
DAMAGED_INFIX: Final = ".damaged-"
"""Between a partition's directory and a number: files that were set aside, and are never opened."""
DAMAGED_KEPT_MAX: Final = 3
"""Of one partition. A disk that damages it again and again is not to be filled with it."""
TICKS_AN_INTERVAL: Final = 4
"""So much of a flush interval may be missed."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is to be served from here."""

    leader_epoch: LeaderEpoch
    settings: TopicSettings
    is_sole: bool = True
    """It has no other replica: what is in its log is committed. Else it follows at first."""


class DirectoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one directory admits."""

    queued_bytes_max: int = QUEUED_BYTES_MAX
    flush_interval_ms: int = FLUSH_INTERVAL_MS
    housekeeping: HousekeepingLimits = DEFAULT_HOUSEKEEPING_LIMITS


class RecoverySummary(msgspec.Struct, kw_only=True):
    """What opening the logs of all directories found."""

    partitions: int = 0
    restored: int = 0
    """Logs that a clean checkpoint told of: nothing of them was read."""
    torn_bytes: int = 0
    failures: list[TidelogError] = []
    orphans: list[str] = []
    strangers: list[str] = []
    """Files in partitions' directories that are not ours: left alone."""

    def take_in(self, disk: Disk, opened: OpenedDirectory) -> None:
        """Count what one directory held."""
        self.restored += opened.restored
        self.orphans += [f"{disk.name}/{name}" for name in opened.orphans]
        if opened.checkpoint_damage is not None:
            self.failures.append(opened.checkpoint_damage)
        for each in opened.logs.values():
            self.torn_bytes += each.torn_bytes
            self.strangers += [f"{disk.name}/{name}" for name in each.strangers]
            if each.log.failure is not None:
                self.failures.append(each.log.failure)


class _Held(HeldLog):
    """What housekeeping looks at."""

    __slots__ = ("_log", "current_settings")

    def __init__(self, log: PartitionLog, settings: TopicSettings) -> None:
        self._log = log
        self.current_settings = settings

    @property
    def log(self) -> PartitionLog:
        """Changed by the owner only."""
        return self._log

    @property
    def settings(self) -> TopicSettings:
        """As they are now."""
        return self.current_settings


class LogDirectory:
    """One of a broker's data directories. `run()` is its task, once it is open."""

    def __init__(
        self,
        disk: Disk | TidelogError,
        worker: Worker,
        clock: Clock,
        *,
        time: HouseTime,
        sealer: Worker,
        name: str,
        events: EventLog,
        directory_uuid: bytes = b"",
        limits: DirectoryLimits | None = None,
    ) -> None:
        self.name = name
        """Where it is."""
        self._found = disk
        self._opening_failure = disk if isinstance(disk, TidelogError) else None
        self._stored = StoredEpoch()
        """What was found, then what is stored."""
        self._worker = worker
        self._sealer = sealer
        self._clock = clock
        self._time = time
        self._events = events
        self._limits = limits or DirectoryLimits()
        self._held: dict[PartitionKey, _Held] = {}
        self._owner: DirectoryOwner | None = None
        self._reader: LogReader | None = None
        self._keeper: Housekeeper | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_flushed = False
        """The owner has come to its end in order."""
        self._has_ended = asyncio.Event()
        self.directory_uuid = directory_uuid

    @property
    def _disk(self) -> Disk:
        assert not isinstance(self._found, TidelogError), f"{self.name} is not there"
        return self._found

    @property
    def owner(self) -> DirectoryOwner:
        """The task that alone changes its logs; there once it is open."""
        assert self._owner is not None, "logs are opened before anything is served"
        return self._owner

    @property
    def reader(self) -> LogReader:
        """Reads of its logs; there once it is open."""
        assert self._reader is not None, "logs are opened before anything is served"
        return self._reader

    @property
    def keeper(self) -> Housekeeper:
        """Retention, seals, compaction, scrubbing; there once it is open."""
        assert self._keeper is not None, "logs are opened before anything is served"
        return self._keeper

    @property
    def failure(self) -> TidelogError | None:
        """Why the directory stopped, or could not be opened."""
        if self._opening_failure is not None or self._owner is None:
            return self._opening_failure
        return self._owner.failure

    @property
    def no_room(self) -> TidelogError | None:
        """Why the last write found no room on the disk; None: it did."""
        return None if self._owner is None else self._owner.no_room

    async def wait_failed(self) -> None:
        """Until the open directory stops: its disk has failed."""
        await self.owner.wait_failed()

    @property
    def is_open(self) -> bool:
        """Whether its owner can be asked."""
        return self._owner is not None

    @property
    def partition_count(self) -> int:
        """How many partitions it holds."""
        return len(self._held)

    @property
    def queued_bytes(self) -> int:
        """Batches between arrival and acknowledgement."""
        return self._owner.queued_bytes if self._owner is not None else 0

    def holds(self, key: PartitionKey) -> bool:
        """Whether it serves the partition, or has opened it and could not."""
        return key in self._held

    async def read_epoch(self) -> BrokerEpoch | None:
        """As what the directory counts; None: it cannot be read, and fails."""
        if self._opening_failure is not None:
            return None
        try:
            self._stored = await read_epoch(self._disk)
        except TidelogError as error:
            self._opening_failure = error
            return None
        if self._stored.marks_doubt:
            self._events.warning(
                "marks_not_believed",
                directory=self.name,
                reason=self._stored.marks_doubt,
                hint="Nobody can tell whether its logs have lost their ends. It counts as a "
                "directory that went back in time: its replicas lead nothing until leaders have "
                "sent them what they lack.",
            )
        return self._stored.counts_as

    async def store_epoch(self, epoch: BrokerEpoch) -> None:
        """Durable at return. Before the logs are open a failure is the directory's alone; later
        it is raised, since nothing of a directory at work may count without it."""
        if self.failure is not None:
            return
        # Marks that are not believed are doubted as long as no others are in their place.
        stamp = epoch if self._stored.marks_doubt else self._stored.marks_stamp
        try:
            await write_epoch(self._disk, epoch, marks_stamp=stamp)
        except TidelogError as error:
            if self.is_open:
                raise
            self._opening_failure = error
            return
        self._stored = msgspec.structs.replace(self._stored, epoch=epoch, marks_stamp=stamp)

    async def _open_logs(self, placed: Mapping[PartitionKey, Placed]) -> OpenedDirectory:
        """Marks first: only once they bear the stamp of this life another one is asked for."""
        epoch = self._stored.epoch
        opened = await open_directory(
            self._disk,
            {key: each.leader_epoch for key, each in placed.items()},
            replicated={key: None for key, each in placed.items() if not each.is_sole},
            are_marks_whole=not self._stored.marks_doubt,
            epoch=epoch,
        )
        if epoch != NO_STORED_EPOCH:
            await write_epoch(self._disk, epoch, marks_stamp=epoch)
            self._stored = StoredEpoch(epoch=epoch, marks_stamp=epoch)
        return opened

    async def survey(self) -> tuple[PartitionKey, ...]:
        """The partitions that lie here, or of which the marks tell that they should.

        A directory that cannot be looked at is one that has failed.
        """
        if self._opening_failure is not None:
            return ()
        try:
            names = await self._disk.list()
            marks = await read_marks(self._disk)
        except TidelogError as error:
            self._opening_failure = error
            return ()
        keys = [parse_directory_name(name) for name in names if name.endswith("/")]
        return tuple(dict.fromkeys([*(key for key in keys if key is not None), *(marks or {})]))

    async def open(
        self,
        placed: Mapping[PartitionKey, Placed],
        summary: RecoverySummary,
        events: LogEvents = NOBODY_WAITS,
    ) -> dict[PartitionKey, PartitionLog]:
        """Open what is placed here; a failure is the directory's, not the broker's."""
        if self._opening_failure is not None:
            return {}
        try:
            opened = await self._open_logs(placed)
        except TidelogError as error:
            self._opening_failure = error
            summary.failures.append(error)
            return {}
        summary.take_in(self._disk, opened)
        owner = self._owner = DirectoryOwner(
            self._disk,
            opened.marks,
            events,
            queued_bytes_max=self._limits.queued_bytes_max,
            flush_interval_ms=self._limits.flush_interval_ms,
        )
        keeper = self._keeper = Housekeeper(
            owner,
            self._disk,
            self._worker,
            self._clock,
            self._time,
            self._held,
            sealer=self._sealer,
            events=self._events,
            limits=self._limits.housekeeping,
        )
        self._reader = LogReader(owner, on_damaged=keeper.seal_again)
        for key, each in placed.items():
            found = opened.logs.get(key)
            if found is None:
                found = OpenedLog(log=PartitionLog(key, each.leader_epoch), files={})
            self._take(found, each)
        return {key: held.log for key, held in self._held.items()}

    def add(self, key: PartitionKey, placed: Placed) -> PartitionLog:
        """Serve a new partition: it has no file until its first batch."""
        opened = OpenedLog(log=PartitionLog(key, placed.leader_epoch), files={})
        if self._owner is None:
            opened.log.failure = self._opening_failure
            return opened.log
        self._take(opened, placed)
        return opened.log

    async def open_again(self, key: PartitionKey, placed: Placed) -> PartitionLog:
        """Open files while the directory is at work: of a log that has stopped, or of an orphan.

        They stay where they are, whatever comes of it; a log that cannot be served has `failure`
        set again. What is raised concerns the directory: the partition is not served from it then.
        """
        if self._held.pop(key, None) is not None:
            await self.owner.release(key)
        opened = await open_at_work(
            self._disk,
            key,
            placed.leader_epoch,
            self.owner.unserved_marks(key),
            is_replicated=not placed.is_sole,
        )
        self._take(opened, placed, is_opened_at_work=True)
        return opened.log

    def _take(self, opened: OpenedLog, placed: Placed, *, is_opened_at_work: bool = False) -> None:
        key = opened.log.key
        assert key not in self._held, f"{key} is served twice"
        self._held[key] = _Held(opened.log, placed.settings)
        self.owner.add(
            opened,
            placed.settings,
            is_sole=placed.is_sole,
            is_opened_at_work=is_opened_at_work,
        )

    def configure(self, key: PartitionKey, settings: TopicSettings) -> None:
        """The partition's topic has other settings from now on."""
        held = self._held.get(key)
        if held is not None:
            held.current_settings = settings
            self.owner.configure(key, settings)

    async def remove(self, key: PartitionKey, *, kept_as: str = "") -> bool:
        """The partition is served no more: its files go, or get another name, since they are
        damaged, and may be the only ones that hold what nobody misses yet. Whether it was done."""
        if self._held.pop(key, None) is None:
            return False
        try:
            await self.owner.remove(key, kept_as=kept_as)
        except TidelogError as error:
            # What is left is an orphan of the next start.
            self._events.warning("deleted_partition_left", partition=key, error=error)
            return False
        return True

    async def name_aside(self, key: PartitionKey) -> str:
        """What to call the files of a damaged partition that are to be kept."""
        prefix = f"{directory_name(key)}{DAMAGED_INFIX}"
        kept = [name for name in await self._disk.list() if name.startswith(prefix)]
        if len(kept) >= DAMAGED_KEPT_MAX:
            raise TidelogError(
                ErrorCode.STORAGE_CORRUPT,
                tried=f"set the damaged files of {key} aside",
                happened=f"{self.name} holds {len(kept)} earlier ones of it already",
                hint=f"Look at its disk. Once {prefix}* is moved away it is copied anew.",
            )
        numbers = [name.rstrip("/").removeprefix(prefix) for name in kept]
        return f"{prefix}{1 + max((int(each) for each in numbers if each.isdigit()), default=0)}"

    async def run(self) -> None:
        """Owner and housekeeping, until `stop` or cancelled."""
        try:
            async with TaskScope() as scope:
                ticks = scope.start(self._tick(), name="directory ticks")
                self._keeping = scope.start(self.keeper.run(), name="housekeeping")
                if self._is_stopping:
                    self._keeping.cancel()
                await self.owner.run()
                self._is_flushed = self.owner.failure is None
                ticks.cancel()
                if not self._is_stopping:
                    # Else it was cancelled by `stop`; a second time would end its clearing up.
                    self._keeping.cancel()
        finally:
            self._has_ended.set()

    async def _tick(self) -> None:
        tick_ms = min(TICK_MS_MAX, max(1, self._limits.flush_interval_ms // TICKS_AN_INTERVAL))
        while True:
            await self._clock.sleep(tick_ms)
            self.owner.tick(self._clock.monotonic_ns() // NS_PER_MS)

    async def stop(self) -> bool:
        """Flush what was accepted and leave a checkpoint; whether everything is flushed.

        Somebody has started `run()`, be it just before.
        """
        if self._owner is None:
            return self._opening_failure is None
        self._is_stopping = True
        if self._keeping is not None:
            # A job that takes long may hold segments that are to be removed before the end.
            self._keeping.cancel()
        self._owner.stop()
        await self._has_ended.wait()
        if not self._is_flushed:
            # One that failed, or was cancelled, leaves none: its next start looks at every byte.
            return False
        try:
            unsettled = self.keeper.unsettled
            logs = [
                held.log
                for key, held in self._held.items()
                if key not in unsettled and held.log.are_producers_known
            ]
            await write_checkpoint(self._disk, logs)
        except TidelogError as error:
            # Everything is flushed; without the checkpoint the next start only looks closer.
            self._events.warning("checkpoint_not_written", directory=self.name, error=error)
        return True

    async def free_bytes(self) -> int:
        """Room on its file system; -1: not known."""
        if isinstance(self._found, TidelogError):
            return -1
        try:
            return await self._disk.free_bytes()
        except TidelogError:
            return -1

"""A node that is nothing but its data directories: recovery, owner, readers, housekeeping, worker.

Puts the broker's own parts together as a node does, without network and metadata: which partitions
there are, with which settings and leader epochs, is told by the suite. One object is one life.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from tidelog.broker.errors import fresh
from tidelog.broker.housekeeping.housekeeper import Housekeeper
from tidelog.broker.housekeeping.limits import HousekeepingLimits
from tidelog.broker.log.lookup_by_time import NONE_FOUND, TimeSearch
from tidelog.broker.log.names import PartitionKey
from tidelog.broker.log.open_checkpoint import write_checkpoint
from tidelog.broker.log.open_directory import OpenedDirectory, open_directory
from tidelog.broker.log.open_log import OpenedLog
from tidelog.broker.log.read import LogReader
from tidelog.broker.log.state import PartitionLog
from tidelog.broker.partition.owner import DirectoryOwner
from tidelog.chaos.checkers.log_model import Bounds
from tidelog.chaos.sim.process import Process, SimulatedPorts
from tidelog.metadata_quorum.controller.topic_configuration import TopicSettings
from tidelog.ports import Disk, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset

_T = TypeVar("_T")


class NodeGone(Exception):
    """The node died before it answered."""


class Placed(msgspec.Struct, kw_only=True):
    """What the metadata would say of a partition now."""

    key: PartitionKey
    directory: str
    settings: TopicSettings
    leader_epoch: LeaderEpoch


class Held(msgspec.Struct):
    """A log that is served, with its settings as they are now: what housekeeping looks at."""

    log: PartitionLog
    settings: TopicSettings


class DirectoryLife:
    """One data directory in one life of the node."""

    def __init__(self, disk: Disk, opened: OpenedDirectory, owner: DirectoryOwner) -> None:
        self.disk = disk
        self.opened = opened
        self.owner = owner
        self.reader = LogReader(owner)
        self.held: dict[PartitionKey, Held] = {}


class Events:
    """What housekeeping would write into the node's log."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note

    def info(self, event: str, **values: object) -> None:
        """Not of interest."""
        del event, values

    def warning(self, event: str, **values: object) -> None:
        """Into the trace."""
        self._note(f"housekeeping:{event}", str(values.get("error", "")))

    def error(self, event: str, **values: object) -> None:
        """Into the trace."""
        self._note(f"housekeeping:{event}", str(values.get("error", "")))


class LogNode:
    """One life; `live` is the main coroutine of its process."""

    def __init__(
        self,
        process: Process,
        placed: dict[PartitionKey, Placed],
        directories: tuple[str, ...],
        limits: HousekeepingLimits,
        note: Callable[[str, str], None],
    ) -> None:
        self._process = process
        self.placed = placed
        self.lives: dict[str, DirectoryLife] = {}
        self.is_ready = False
        self._directories = directories
        self._limits = limits
        self._note = note
        self._stopping = asyncio.Event()
        self._answers: dict[asyncio.Future[Any], None] = {}
        self.is_stopping = False

    async def live(self, ports: SimulatedPorts, on_ready: Callable[["LogNode"], None]) -> None:
        """Open everything, serve until told to stop, leave a checkpoint."""
        disks = {name: ports.open_disk(name) for name in self._directories}
        for name, disk in disks.items():
            self.lives[name] = await self._open(name, disk)
        async with TaskScope() as scope:
            async with TaskScope() as housekeeping:
                for name, life in self.lives.items():
                    scope.start(life.owner.run(), name=f"owner of {name}")
                    keeper = Housekeeper(
                        life.owner,
                        life.disk,
                        ports.worker,
                        ports.clock,
                        life.held,
                        events=Events(self._note),
                        limits=self._limits,
                    )
                    housekeeping.start(keeper.run(), name=f"housekeeper of {name}")
                self.is_ready = True
                on_ready(self)
                await self._stopping.wait()
                housekeeping.cancel()
            await ports.worker.close()
            for life in self.lives.values():
                life.owner.stop()
        for name, life in self.lives.items():
            if life.owner.failure is None:
                await write_checkpoint(life.disk, [held.log for held in life.held.values()])
                self._note("node:checkpoint", name)
            await life.disk.shutdown()

    async def _open(self, name: str, disk: Disk) -> DirectoryLife:
        here = {key: each for key, each in self.placed.items() if each.directory == name}
        opened = await open_directory(disk, {key: each.leader_epoch for key, each in here.items()})
        owner = DirectoryOwner(disk, opened.marks, on_advanced=lambda _: None)
        life = DirectoryLife(disk, opened, owner)
        for key, each in here.items():
            found = opened.logs.get(key)
            if found is None:
                found = OpenedLog(log=PartitionLog(key, each.leader_epoch), files={})
            owner.add(found, each.settings)
            life.held[key] = Held(found.log, each.settings)
        return life

    # -- what handlers do ----------------------------------------------------------------------

    def life_of(self, key: PartitionKey) -> DirectoryLife:
        """Of the directory that holds the partition."""
        return self.lives[self.placed[key].directory]

    def log_of(self, key: PartitionKey) -> PartitionLog:
        """As it is now."""
        return self.life_of(key).held[key].log

    def bounds_of(self, key: PartitionKey) -> Bounds:
        """What an answer carries."""
        log = self.log_of(key)
        return Bounds(
            log_start=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end=log.log_end_offset,
        )

    async def read(self, key: PartitionKey, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """Whole batches and where to go on."""
        life, log = self.life_of(key), self._usable(key)
        if not log.log_start_offset <= offset <= log.high_watermark:
            raise TidelogError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                tried=f"read {key} from {offset}",
                happened=f"it reaches from {log.log_start_offset} to {log.high_watermark}",
            )
        found = await life.reader.read(log, offset, max_bytes)
        return found.data, found.next_offset

    async def first_at(self, key: PartitionKey, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and time of the first record at or after the time."""
        log = self._usable(key)
        found = await TimeSearch(self.life_of(key).reader).first_at(log, timestamp_ms)
        return None if found == NONE_FOUND else found

    async def newest(self, key: PartitionKey) -> tuple[int, int] | None:
        """Offset and time of the first record of the highest time."""
        log = self._usable(key)
        found = await TimeSearch(self.life_of(key).reader).newest(log)
        return None if found == NONE_FOUND else found

    async def trim(self, key: PartitionKey, offset: int) -> int:
        """Delete records."""
        return await self.life_of(key).owner.trim(self._usable(key), Offset(offset))

    async def truncate(self, key: PartitionKey, offset: int) -> int:
        """Cut the tail, as a follower is told to."""
        owner = self.life_of(key).owner
        return await owner.truncate(self._usable(key), Offset(offset), is_unclean=True)

    def configure(self, key: PartitionKey, settings: TopicSettings) -> None:
        """Take other settings over."""
        life = self.life_of(key)
        life.held[key].settings = settings
        life.owner.configure(key, settings)

    def _usable(self, key: PartitionKey) -> PartitionLog:
        log = self.log_of(key)
        if log.failure is not None:
            raise fresh(log.failure)
        return log

    # -- calls from outside --------------------------------------------------------------------

    async def call(self, work: Callable[[], Coroutine[Any, Any, _T]], name: str) -> _T:
        """Run it as a handler of the node. Raises NodeGone if the node dies before it answers."""
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        async def handle() -> None:
            try:
                result = await work()
            except TidelogError as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        if self._process.is_dead:
            raise NodeGone
        self._answers[answer] = None
        self._process.start_task(handle(), name)
        try:
            return await answer
        finally:
            del self._answers[answer]

    def abandon(self) -> None:
        """The node is dead: whoever waits for it is told."""
        assert self._process.is_dead, "only a dead node leaves its callers alone"
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(NodeGone())

    def stop(self) -> None:
        """In order: everything accepted is answered and flushed first."""
        self.is_stopping = True
        self._stopping.set()

"""The task that owns a data directory, over a disk that holds it to the port's contract."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.directory.owner.requests import WAITING_SWEPT_MIN
from tidelog.broker.log.marks import file as marks_file
from tidelog.broker.log.marks.file import make_marks_file
from tidelog.broker.log.marks.marks import PartitionMarks
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import Append, File, TaskScope
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionId, PartitionKey, TopicId

KEY = PartitionKey(TopicId(bytes(16)), PartitionId(0))
REPLICATED = PartitionKey(TopicId(bytes(16)), PartitionId(1))


class FullDisk:
    """A disk that can be full to the last byte: then an append writes nothing at all, and until
    they are truncated its files take no other (the port's promise 7).
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.is_full = False
        self.torn: dict[str, None] = {}
        self.open_files: list[File] = []
        self.name = disk.name
        self.operations: list[str] = []
        """Removals, truncations and flushes of directories, in their order."""
        for name in ("read", "list", "make_directory", "free_bytes", "rename"):
            setattr(self, name, getattr(disk, name))
        setattr(self, "flush", self._flush)  # noqa: B010

    async def open(self, path: str, *, create: bool = False) -> File:
        file = await self._disk.open(path, create=create)
        self.open_files.append(file)
        return file

    async def close(self, file: File) -> None:
        self.open_files.remove(file)
        await self._disk.close(file)

    async def append(self, appends: Sequence[Append]) -> None:
        for each in appends:
            if each.file.path in self.torn:
                raise TidelogError(
                    ErrorCode.STORAGE_FAILED, tried="append", happened="truncate the file first"
                )
        if self.is_full:
            self.torn.update(dict.fromkeys(each.file.path for each in appends))
            raise TidelogError(ErrorCode.STORAGE_FULL, tried="append", happened="no space")
        await self._disk.append(appends)

    async def remove(self, path: str) -> None:
        self.operations.append(f"remove {path.rpartition('/')[2]}")
        await self._disk.remove(path)

    async def _flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        await self._disk.flush(files, directories=directories)
        if directories:
            self.operations.append("flushed")

    async def truncate(self, file: File, size_bytes: int) -> None:
        self.operations.append(f"truncate {file.path.rpartition('/')[2]}")
        self.torn.pop(file.path, None)
        await self._disk.truncate(file, size_bytes)


class Owned:
    """An owner of one partition, and its disk."""

    def __init__(self, owner: DirectoryOwner, log: PartitionLog, disk: FullDisk) -> None:
        self.owner, self.log, self.disk = owner, log, disk

    async def append(self, value: bytes = b"v", *, is_flush_awaited: bool = True) -> Appended:
        batch = encode_batch([(1, None, value, ())])
        return await self.owner.submit(
            self.log, batch, read_header(batch), is_flush_awaited=is_flush_awaited, append_time_ms=1
        )


def with_owner(
    work: Callable[[Owned], Awaitable[None]],
    *,
    marks_bytes_max: int = 1 << 20,
    queued_bytes_max: int = 1 << 27,
) -> None:
    """Run an owner until the work is done, then stop it in order."""
    world = World(3)

    async def live(ports: SimulatedPorts) -> None:
        disk = FullDisk(ports.open_disk())
        log = PartitionLog(KEY, LeaderEpoch(0))
        owner = DirectoryOwner(
            disk,  # type: ignore[arg-type]
            await make_marks_file(disk, {}, size_bytes_max=marks_bytes_max),  # type: ignore[arg-type]
            queued_bytes_max=queued_bytes_max,
        )
        owner.add(OpenedLog(log=log, files={}), TopicSettings())
        async with TaskScope() as scope:
            scope.start(owner.run(), name="owner")
            await work(Owned(owner, log, disk))
            owner.stop()

    async def main() -> None:
        process = world.machine("m").start("p", live)
        for _ in range(10_000):
            if process.is_dead:
                break
            await asyncio.sleep(0.05)
        if process.exit_error is not None:
            raise process.exit_error
        assert process.is_dead, "the owner did not come to its end"

    try:
        world.run(main())
        assert world.findings() == []
    finally:
        world.close()


def test_a_partition_goes_on_after_a_disk_that_was_full_to_the_last_byte() -> None:
    async def work(owned: Owned) -> None:
        await owned.append()
        owned.disk.is_full = True
        for _ in range(3):
            with pytest.raises(TidelogError) as caught:
                await owned.append()
            assert caught.value.code is ErrorCode.STORAGE_FULL
            assert owned.owner.no_room is not None
        owned.disk.is_full = False
        assert (await owned.append()).base_offset == 1
        assert owned.owner.no_room is None
        assert owned.owner.failure is None

    with_owner(work)


def test_a_marks_file_that_was_replaced_is_closed_and_one_that_did_not_fit_too() -> None:
    async def work(owned: Owned) -> None:
        for number in range(60):
            assert (await owned.append()).base_offset == number
        open_marks = [file for file in owned.disk.open_files if file.path == marks_file.NAME]
        assert len(open_marks) <= 2, "the newest, and one that a flush in flight may hold"
        owned.disk.is_full = True
        before = len(owned.disk.open_files)
        with pytest.raises(TidelogError):
            await make_marks_file(owned.disk, {KEY: PartitionMarks(flushed_offset=1)})  # type: ignore[arg-type]
        assert len(owned.disk.open_files) == before

    with_owner(work, marks_bytes_max=128)


class Replicated:
    """A partition beside the first one, led here; both its followers are in sync and store
    nothing."""

    def __init__(self, owner: DirectoryOwner) -> None:
        self._owner = owner
        self.log = PartitionLog(REPLICATED, LeaderEpoch(0))
        owner.add(
            OpenedLog(log=self.log, files={}),
            TopicSettings(in_sync_replicas_min=2),
            is_sole=False,
        )
        self._lead((BrokerId(2), BrokerId(3)))

    def lose_followers(self) -> None:
        """Too few are in sync from now on."""
        self._lead(())

    def submit(self, batch: bytes) -> "asyncio.Future[Appended]":
        """With acks=all."""
        header = read_header(batch)
        return self._owner.submit(self.log, batch, header, is_flush_awaited=True, append_time_ms=1)

    def _lead(self, others: tuple[BrokerId, ...]) -> None:
        self._owner.lead(
            self.log, LeaderEpoch(1), others=others, in_sync_count=1 + len(others), is_sole=False
        )


def test_a_commit_that_does_not_come_takes_no_room_from_the_other_partitions() -> None:
    async def work(owned: Owned) -> None:
        replicated = Replicated(owned.owner)
        batches = [
            encode_batch(
                [(1, None, b"x" * 3_000, ())],
                producer_id=5,
                producer_epoch=0,
                base_sequence=sequence,
            )
            for sequence in range(3)
        ]
        waiting = [replicated.submit(batch) for batch in batches]
        assert owned.owner.queued_bytes == sum(len(batch) for batch in batches)
        await asyncio.sleep(0.5)
        # They come again, and wait once more for what is written already.
        waiting += [replicated.submit(batch) for batch in batches]
        await asyncio.sleep(0.5)
        replicated.lose_followers()
        await asyncio.sleep(60)
        assert not any(each.done() for each in waiting)
        assert owned.owner.queued_bytes == 0
        assert (await owned.append(b"x" * 3_000)).base_offset == 0
        for each in waiting:
            each.cancel()

    with_owner(work, queued_bytes_max=10_000)


@pytest.mark.slow
def test_of_those_that_wait_in_vain_for_a_commit_a_bounded_number_is_kept() -> None:
    async def work(owned: Owned) -> None:
        replicated = Replicated(owned.owner)
        batch = encode_batch([(1, None, b"x", ())])
        kept = replicated.submit(batch)
        forgotten: list[weakref.ref[object]] = []
        for _ in range(WAITING_SWEPT_MIN - 2):
            waiting = replicated.submit(batch)
            forgotten.append(weakref.ref(waiting))
            waiting.cancel()
            del waiting
        await asyncio.sleep(0.5)
        assert all(each() is not None for each in forgotten)
        last = replicated.submit(batch)
        await asyncio.sleep(0.5)
        assert not any(each() for each in forgotten)
        assert not kept.done()
        owned.owner.follow(replicated.log, LeaderEpoch(2))
        for each in (kept, last):
            with pytest.raises(TidelogError) as caught:
                await each
            assert caught.value.code is ErrorCode.INDETERMINATE

    with_owner(work)

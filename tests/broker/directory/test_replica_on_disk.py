"""A follower's log on a disk: copies, cuts and restarts over stops, kills and crashes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import pytest

from tests.broker.log.test_open_crashes import CRASH_KINDS
from tidelog.broker.directory.core.messages import CommitTo, RestartLog, TrimHead
from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.broker.directory.owner.owner import DirectoryOwner, LogEvents
from tidelog.broker.log.opening.checkpoint import write_checkpoint
from tidelog.broker.log.opening.directory import open_directory
from tidelog.broker.log.opening.log import OpenedLog
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.chaos.sim.world.process import Process
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.ports import TaskScope
from tidelog.wire.batch import encode_batch, read_header
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

KEY: Final = PartitionKey(TopicId(bytes(16)), PartitionId(0))
EPOCH: Final = LeaderEpoch(5)
SETTINGS: Final = TopicSettings(in_sync_replicas_min=2)


class Held:
    """An owner and its only log."""

    def __init__(self, owner: DirectoryOwner, log: PartitionLog) -> None:
        self.owner, self.log = owner, log
        self.moved: list[tuple[int, int]] = []

    def copy(
        self, offsets: Iterable[int], *, behind: int | None = None, epoch: int = 1
    ) -> "asyncio.Future[Offset]":
        """Batches of one record at these offsets, as a leader sends them."""
        batches = [
            encode_batch([(1, None, b"%d" % each, ())], base_offset=each, leader_epoch=epoch)
            for each in offsets
        ]
        headers = [read_header(each) for each in batches]
        expected = None if behind is None else Offset(behind)
        return self.owner.append_copy(self.log, b"".join(batches), headers, behind=expected)

    async def settled(self) -> None:
        """All that was told has come to its end."""
        self.owner.tick(self._now_ms())
        await asyncio.sleep(1.0)

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


Work = Callable[[Held], Awaitable[None]]


class Shelf:
    """A machine with one data directory, and the lives of the process on it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._machine = world.machine("m")

    def begin(self, work: Work, *, is_stopped: bool = False) -> Process:
        """A life: open, work, then stop in order, or wait for the end."""

        async def live(ports: SimulatedPorts) -> None:
            disk = ports.open_disk()
            directory = await open_directory(disk, {KEY: EPOCH}, replicated={KEY: None})
            opened = directory.logs.get(KEY) or OpenedLog(log=PartitionLog(KEY, EPOCH), files={})
            held: list[Held] = []
            owner = DirectoryOwner(
                disk,
                directory.marks,
                LogEvents(
                    on_moved=lambda key: held[0].moved.append(
                        (held[0].log.log_end_offset, held[0].log.flushed_offset)
                    )
                ),
            )
            held.append(Held(owner, opened.log))
            owner.add(opened, SETTINGS, is_sole=False)
            async with TaskScope() as scope:
                scope.start(owner.run(), name="owner")
                await work(held[0])
                if not is_stopped:
                    await asyncio.Event().wait()
                owner.stop()
            await write_checkpoint(disk, [opened.log])

        return self._machine.start("p", live)

    async def whole(self, work: Work, *, is_stopped: bool = False) -> None:
        """A life whose work comes to its end; then a stop, or a kill."""
        has_ended = asyncio.Event()

        async def noted(held: Held) -> None:
            await work(held)
            has_ended.set()

        process = self.begin(noted, is_stopped=is_stopped)
        for _ in range(10_000):
            if process.is_dead or (has_ended.is_set() and not is_stopped):
                break
            await asyncio.sleep(0.01)
        if process.exit_error is not None:
            raise process.exit_error
        assert process.is_dead or has_ended.is_set(), "a life never comes to its end"
        if not process.is_dead:
            process.kill()

    def crash(self) -> None:
        """The machine dies."""
        self._machine.crash()


def run(main: Callable[[Shelf], Awaitable[None]], *, seed: int = 1) -> None:
    world = World(seed, enabled=CRASH_KINDS, probabilities=dict.fromkeys(CRASH_KINDS, 0.5))

    async def work() -> None:
        await main(Shelf(world))

    try:
        world.run(work())
        assert world.findings() == []
    finally:
        world.close()


async def filled(held: Held) -> None:
    """Ten batches, of which the leader has committed seven."""
    assert await held.copy(range(10), behind=0) == 10
    held.owner.commit_to(CommitTo(key=KEY, leader_epoch=EPOCH, offset=Offset(7)))
    await held.settled()
    assert held.log.high_watermark == 7


def test_copies_are_done_once_written_and_tell_of_every_move() -> None:
    async def work(held: Held) -> None:
        await filled(held)
        assert held.moved[0] == (10, 0)
        assert held.moved[-1] == (10, 10)
        assert held.log.leader_epochs.latest == 1

    run(lambda shelf: shelf.whole(work))


def test_copies_that_do_not_fit_are_refused_one_and_all() -> None:
    async def work(held: Held) -> None:
        await filled(held)
        for offsets, behind in ((range(9, 12), None), (range(12, 14), 12), (range(11, 13), 10)):
            done = held.copy(offsets, behind=behind)
            if behind == 10:
                assert await done == 13, "a compaction has left a gap"
                continue
            with pytest.raises(TidelogError) as caught:
                await done
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(TidelogError):
            await held.copy([13], epoch=9)

    run(lambda shelf: shelf.whole(work))


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stop", "kill"])
def test_the_watermark_of_a_follower_outlives_its_process(is_stopped: bool) -> None:
    async def work(held: Held) -> None:
        assert (held.log.high_watermark, held.log.log_end_offset) == (7, 10)
        held.owner.lead(held.log, LeaderEpoch(6), others=(BrokerId(2),), in_sync_count=2)
        held.owner.follower_at(
            FollowerAt(
                key=KEY,
                broker_id=BrokerId(2),
                broker_epoch=BrokerEpoch(1),
                leader_epoch=LeaderEpoch(6),
                partition_epoch=PartitionEpoch(0),
                log_end_offset=Offset(10),
                flushed_offset=Offset(10),
            )
        )
        await held.owner.turn()
        assert held.log.high_watermark == 10

    async def main(shelf: Shelf) -> None:
        await shelf.whole(filled, is_stopped=is_stopped)
        await shelf.whole(work)

    run(main)


def test_after_a_crash_a_watermark_is_never_above_what_was_told() -> None:
    for seed in range(6):

        async def work(held: Held) -> None:
            log = held.log
            assert log.failure is None
            assert log.high_watermark <= min(7, log.log_end_offset)

        async def main(shelf: Shelf) -> None:
            await shelf.whole(filled)
            shelf.crash()
            await shelf.whole(work)

        run(main, seed=seed)


async def moved_up(held: Held) -> None:
    """A log that begins at offset 30 and has ten batches."""
    await filled(held)
    await held.owner.change(RestartLog(key=KEY, offset=Offset(30)))
    await held.copy(range(30, 40), behind=30)
    await held.settled()


def crash_while_restarting(seed: int, offset: int, *, start: int = 0) -> None:
    """A log that is asked to go on elsewhere, and a death at any moment of that."""

    async def restarting(held: Held) -> None:
        assert await held.owner.change(RestartLog(key=KEY, offset=Offset(offset))) == offset
        done.append(True)
        await held.copy(range(offset, offset + 3), behind=offset)

    async def judge(held: Held) -> None:
        log = held.log
        assert log.failure is None, log.failure
        ends = (log.log_start_offset, log.log_end_offset)
        is_new = ends[0] == offset and ends[1] <= offset + 4
        is_old = ends[0] == start and ends[1] - start in (0, 1, 10, 11)
        assert is_new or (is_old and not done), ends
        # Whatever it is, it goes on from there.
        end = log.log_end_offset
        assert await held.copy([end], behind=end) == end + 1

    done: list[bool] = []

    async def main(shelf: Shelf) -> None:
        await shelf.whole(moved_up if start else filled, is_stopped=seed % 2 == 0)
        process = shelf.begin(restarting)
        await asyncio.sleep(0.001 * (seed % 40))
        if seed % 3:
            shelf.crash()
        else:
            process.kill()
        await shelf.whole(judge)
        shelf.crash()
        await shelf.whole(judge if not done else _whatever)

    run(main, seed=seed)


async def _whatever(held: Held) -> None:
    assert held.log.failure is None, held.log.failure


PLACES: Final = [(0, 20), (0, 4), (30, 60), (30, 8)]


@pytest.mark.parametrize(("start", "offset"), PLACES)
def test_a_death_while_a_log_restarts_leaves_it_whole_or_empty(start: int, offset: int) -> None:
    for seed in range(4):
        crash_while_restarting(seed, offset, start=start)


@pytest.mark.slow
@pytest.mark.parametrize(("start", "offset"), PLACES)
def test_a_death_at_any_moment_while_a_log_restarts_leaves_it_whole_or_empty(
    start: int, offset: int
) -> None:
    for seed in range(120):
        crash_while_restarting(seed, offset, start=start)


def test_a_log_that_restarted_twice_takes_what_it_is_given() -> None:
    async def work(held: Held) -> None:
        await filled(held)
        for offset in (40, 15):
            await held.owner.change(RestartLog(key=KEY, offset=Offset(offset)))
            assert await held.copy(range(offset, offset + 5), behind=offset) == offset + 5
            await held.settled()

    async def judge(held: Held) -> None:
        log = held.log
        assert log.failure is None
        assert (log.log_start_offset, log.log_end_offset) == (15, 20)

    async def main(shelf: Shelf) -> None:
        await shelf.whole(work)
        await shelf.whole(judge)
        shelf.crash()
        await shelf.whole(judge)

    run(main)


def test_a_replica_that_comes_back_after_its_removal_is_a_new_one() -> None:
    for seed in range(6):

        async def work(held: Held) -> None:
            await filled(held)
            await held.owner.change(TrimHead(key=KEY, offset=Offset(5), start_epoch=EPOCH))
            await held.owner.remove(KEY)
            log = PartitionLog(KEY, EPOCH)
            held.owner.add(OpenedLog(log=log, files={}), SETTINGS, is_sole=False)
            again = Held(held.owner, log)
            assert await again.copy(range(3), behind=0) == 3

        async def judge(held: Held) -> None:
            log = held.log
            assert log.failure is None, log.failure
            assert log.log_start_offset == 0
            assert log.log_end_offset <= 3

        async def main(shelf: Shelf) -> None:
            await shelf.whole(work)
            shelf.crash()
            await shelf.whole(judge)

        run(main, seed=seed)

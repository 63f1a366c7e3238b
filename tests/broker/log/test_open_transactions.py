"""A log with transactions that is opened again: as it was, and its readers go no further than they
may although sealed segments are not read."""

import random

import pytest

from tests.broker.support.open_fixtures import EPOCH, KEY, key_of, put_durable, run, start
from tests.support.segment_bytes import Batch, batch_bytes
from tidelog.broker.directory.core.invariants import check_log
from tidelog.broker.log.leader_epochs import EpochStart
from tidelog.broker.log.marks.file import NAME as MARKS
from tidelog.broker.log.marks.marks import Mark, MarkKind, encode_marks
from tidelog.broker.log.opening.checkpoint import write_checkpoint
from tidelog.broker.log.opening.directory import OpenedDirectory, open_directory
from tidelog.broker.log.producer_state import ProducerState
from tidelog.broker.log.sidecar.builder import SegmentFacts, SidecarBuilder
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, find_section, has_transactions
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.sim import World
from tidelog.wire.ids import Offset


class History:
    """Segments of one offset a batch, all but the last one with a sidecar."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.batches: list[Batch] = []
        self.files: dict[str, bytes] = {}
        self.sealed_end = 0
        producers, epochs = ProducerState(), tuple[EpochStart, ...]()
        counts = [chance.randint(1, 5) for _ in range(chance.randint(2, 5))]
        for place, count in enumerate(counts):
            base = len(self.batches)
            # Some segments have to do with no transaction, or lie in one that is open.
            is_plain = chance.random() < 0.3
            made = [_batch(chance, is_plain=is_plain) for _ in range(count)]
            data = b"".join(batch_bytes(each, base + at) for at, each in enumerate(made))
            self.batches += made
            self.files[key_of(base).path] = data
            if place == len(counts) - 1:
                break
            builder = SidecarBuilder(
                SegmentFacts(key=key_of(base), epochs_before=epochs), producers
            )
            builder.feed(data)
            summary, sidecar = builder.finish()
            section = find_section(summary, PRODUCERS)
            end = section.byte_position + section.length_bytes
            producers = ProducerState.decode(sidecar[section.byte_position : end])
            epochs = summary.leader_epochs
            self.files[key_of(base).sidecar_path] = sidecar
            self.sealed_end = len(self.batches)

    def stable(self, high_watermark: int) -> int:
        """By all batches, from the first on."""
        started: dict[int, int] = {}
        bounds = [high_watermark]
        for offset, each in enumerate(self.batches):
            if each.is_control:
                first = started.pop(each.producer_id, None)
                if first is not None and offset >= high_watermark:
                    bounds.append(first)
            elif each.is_transactional:
                started.setdefault(each.producer_id, offset)
        return min([*bounds, *started.values()])

    def marks(self, committed: int) -> bytes:
        return encode_marks(
            [
                Mark(KEY, MarkKind.FLUSHED, len(self.batches)),
                Mark(KEY, MarkKind.COMMITTED, committed),
            ]
        )


def _batch(chance: random.Random, *, is_plain: bool) -> Batch:
    if is_plain or chance.random() < 0.2:
        return Batch()
    producer_id = chance.randint(1, 2)
    if chance.random() < 0.4:
        return Batch(producer_id=producer_id, is_control=True, is_abort=chance.random() < 0.5)
    return Batch(producer_id=producer_id, is_transactional=True)


def log_in(opened: OpenedDirectory) -> PartitionLog:
    log = opened.logs[KEY].log
    assert log.failure is None, log.failure
    return log


@pytest.mark.parametrize("seed", range(40))
def test_readers_of_a_replica_that_is_opened_again_go_no_further_than_they_may(seed: int) -> None:
    history = History(seed)
    end = len(history.batches)
    committed = random.Random(seed).randint(1, end)
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {**history.files, MARKS: history.marks(committed)})
        log = log_in(await open_directory(disk, {KEY: EPOCH}, replicated={KEY}))
        assert log.high_watermark <= committed
        while True:
            expected = history.stable(log.high_watermark)
            assert log.last_stable_offset <= expected
            if log.high_watermark >= history.sealed_end:
                assert log.last_stable_offset == expected
            if not log.commit_to(log.high_watermark + 1):
                break
        # What the log knows no batch ends of is committed at once.
        log.commit_to(end)
        check_log(log)
        assert log.last_stable_offset == history.stable(end)

    run(world, main())


@pytest.mark.parametrize("seed", range(12))
def test_a_sole_replica_that_is_opened_again_knows_all_ends(seed: int) -> None:
    history = History(seed)
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {**history.files, MARKS: history.marks(1)})
        log = log_in(await open_directory(disk, {KEY: EPOCH}))
        check_log(log)
        assert log.last_stable_offset == history.stable(len(history.batches))

    run(world, main())


@pytest.mark.parametrize("seed", range(12))
def test_a_clean_checkpoint_tells_what_is_open_and_which_ends_are_not_committed(seed: int) -> None:
    """Redpanda 26.1.3: a snapshot of a partition's state holds its open transactions."""
    history = History(seed)
    end = len(history.batches)
    committed = random.Random(seed).randint(history.sealed_end, end)
    world = World(1)

    async def main() -> None:
        disk = start(world)
        await put_durable(disk, {**history.files, MARKS: history.marks(committed)})
        before = log_in(await open_directory(disk, {KEY: EPOCH}, replicated={KEY}))
        before.commit_to(committed)
        await write_checkpoint(disk, [before])
        world.machine("m").processes["p"].kill()
        disk = start(world)
        opened = await open_directory(disk, {KEY: EPOCH}, replicated={KEY})
        assert opened.restored == 1
        after = log_in(opened)
        assert after.high_watermark == before.high_watermark
        assert after.transactions.started == before.transactions.started
        assert after.transactions.ended == before.transactions.ended
        assert after.last_stable_offset == before.last_stable_offset
        of_last = [each.segments[-1].transactions for each in (before, after)]
        was, told = (each and each.encode() for each in of_last)
        assert told == was

    run(world, main())


def test_where_a_sealed_segments_section_is_damaged_readers_wait_at_the_logs_start() -> None:
    history, sidecars = History(0), list[str]()
    for seed in range(1, 200):
        sidecars = [path for path in history.files if path.endswith(".sidecar")]
        if len(sidecars) > 2 and history.files[sidecars[0]][9] == 2:
            break
        history = History(seed)
    world = World(1)
    sidecar = bytearray(history.files[sidecars[0]])

    async def main() -> None:
        disk = start(world)
        sidecar[-1] ^= 1
        files = {**history.files, sidecars[0]: bytes(sidecar), MARKS: history.marks(1)}
        await put_durable(disk, files)
        log = log_in(await open_directory(disk, {KEY: EPOCH}, replicated={KEY}))
        assert log.segments[0].summary is not None
        assert has_transactions(log.segments[0].summary)
        assert find_section(log.segments[0].summary, TRANSACTIONS).length_bytes
        assert log.last_stable_offset <= history.stable(log.high_watermark)
        log.commit_to(Offset(len(history.batches)))
        assert log.last_stable_offset == history.stable(len(history.batches))

    run(world, main())

"""Random logs of several producers with transactions, through rolls, cuts, compaction and restarts,
against all that was ever appended."""

import functools
import os
import random

import msgspec
import pytest

from tidelog.broker.directory.core.invariants import StableOffsets, check_log
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.log.sidecar.codec import PRODUCERS, TRANSACTIONS, find_section
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.log.transactions.aborted import AbortedTransaction
from tidelog.broker.replicas.directory import Placed
from tidelog.chaos.checkers.log.derived import check_derived
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.fuzz.log_house import LogHouse
from tidelog.chaos.sim import FaultKind
from tidelog.chaos.sim.ports.medium import Inode
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch, iterate_headers, read_header, stamp
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

SEEDS = int(os.environ.get("TIDELOG_TRANSACTION_SEEDS", "12"))
STEPS = 60
TOPIC = TopicId(bytes([7]) * 16)
DELETED, COMPACTED = (PartitionKey(TOPIC, PartitionId(each)) for each in range(2))
KEYS = (DELETED, COMPACTED)
CRASH_KINDS = (FaultKind.LOST_WRITE, FaultKind.TORN_WRITE, FaultKind.HOLE, FaultKind.LOST_NAME)


class Stored(msgspec.Struct, frozen=True):
    """What was appended, by the offset that it got."""

    offset: int
    end_offset: int
    producer_id: int
    is_transactional: bool
    marker: MarkerType | None


class Oracle:
    """One partition: all that was appended, read again from its first batch for each question."""

    def __init__(self) -> None:
        self.history: list[Stored] = []
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """Producer, first offset, marker's offset (None: it is open), whether it was aborted."""
        started: dict[int, int] = {}
        found: list[tuple[int, int, int | None, bool]] = []
        for each in self.history:
            if each.marker is not None:
                first = started.pop(each.producer_id, None)
                if first is not None:
                    is_aborted = each.marker is MarkerType.ABORT
                    found.append((each.producer_id, first, each.offset, is_aborted))
            elif each.is_transactional:
                started.setdefault(each.producer_id, each.offset)
        found += [(producer_id, first, None, False) for producer_id, first in started.items()]
        return found

    def stable(self, log_start: int, high_watermark: int) -> int:
        bounds = [
            first
            for _, first, marker, _ in self.transactions()
            if marker is None or marker >= high_watermark
        ]
        return max(log_start, min([high_watermark, *bounds]))

    def aborted(self, begin: int, end: int) -> list[AbortedTransaction]:
        return [
            AbortedTransaction(producer_id, Offset(first), marker)
            for producer_id, first, marker, is_aborted in self.transactions()
            if is_aborted and marker is not None and marker >= begin and first < end
        ]

    def cut(self, end_offset: int) -> None:
        self.history = [each for each in self.history if each.end_offset <= end_offset]
        # Whoever goes on after a loss takes a new epoch.
        self.epochs = {each: self.epochs.get(each, 0) + 1 for each in range(4)}
        self.sequences.clear()


class Lives:
    """One data directory and what is known of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = HousekeepingLimits(
            check_interval_ms=1_000, bytes_per_second=0, scrub_interval_ms=9_000
        )
        self.house = LogHouse(seed, limits=limits, crash_kinds=CRASH_KINDS)
        for key in KEYS:
            settings = TopicSettings(
                segment_bytes=self.random.choice([400, 1_500]),
                retention_ms=-1,
                is_flush_sync=False,
                is_compacted=key == COMPACTED,
                is_deleted=key != COMPACTED,
                min_cleanable_dirty_ratio=0.1,
                delete_retention_ms=3_000,
            )
            self.house.placed[key] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
        self.oracles = {key: Oracle() for key in KEYS}
        self.trimmed = dict.fromkeys(KEYS, False)
        self.stable = StableOffsets()
        self.counts = dict.fromkeys(("aborted", "open", "sealed", "compacted"), 0)

    def log(self, key: PartitionKey) -> PartitionLog:
        return self.house.life.logs[key]

    def play(self) -> None:
        self.house.begin()
        steps = (
            [self.append] * 8
            + [self.end] * 4
            + [self.roll] * 2
            + [self.pass_time] * 3
            + [self.truncate, self.trim, self.stop, self.kill, self.crash]
        )
        for _ in range(STEPS):
            self.random.choice(steps)(self.random.choice(KEYS))
            for each in KEYS:
                self.check(each)
        self.house.stop()
        self.house.close()

    # -- what is done ----------------------------------------------------------------------------

    def append(self, key: PartitionKey) -> None:
        for _ in range(self.random.randint(1, 4)):
            producer_id = self.random.randint(-1, 3)
            is_transactional = producer_id >= 0 and self.random.random() < 0.8
            oracle, count = self.oracles[key], self.random.randint(1, 3)
            sequence = oracle.sequences.get(producer_id, 0)
            batch = encode_batch(
                [
                    (
                        self.house.life.clock.wall_ms(),
                        b"k%d" % self.random.randint(0, 5),
                        b"v" * self.random.choice([1, 60, 200]),
                        (),
                    )
                    for _ in range(count)
                ],
                producer_id=producer_id,
                producer_epoch=oracle.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
                base_sequence=sequence if producer_id >= 0 else -1,
                is_transactional=is_transactional,
            )
            oracle.sequences[producer_id] = sequence + count
            self.store(key, batch, producer_id, count, is_transactional=is_transactional)

    def end(self, key: PartitionKey) -> None:
        """A marker; sometimes again, sometimes of nothing."""
        producer_id, oracle = self.random.randint(0, 3), self.oracles[key]
        kind = self.random.choice([MarkerType.ABORT, MarkerType.COMMIT])
        oracle.epochs[producer_id] = oracle.epochs.get(producer_id, 0) + 1
        oracle.sequences[producer_id] = 0
        for _ in range(self.random.choice([1, 1, 1, 2])):
            batch = encode_marker(
                Marker(kind, 3),
                producer_id=producer_id,
                producer_epoch=oracle.epochs[producer_id],
                timestamp_ms=self.house.life.clock.wall_ms(),
            )
            self.store(key, batch, producer_id, 1, is_transactional=True, marker=kind)

    def store(
        self,
        key: PartitionKey,
        batch: bytes,
        producer_id: int,
        count: int,
        *,
        is_transactional: bool,
        marker: MarkerType | None = None,
    ) -> None:
        """As a copy of what a leader has admitted: a log takes what is stored."""
        log, owner = self.log(key), self.house.life.directory.owner
        offset, stamped = log.log_end_offset, bytearray(batch)
        stamp(stamped, 0, base_offset=offset, leader_epoch=log.leader_epoch)

        async def append() -> Offset:
            return await owner.append_copy(log, bytes(stamped), [read_header(stamped)])

        assert self.house.call(append) == offset + count
        self.oracles[key].history.append(
            Stored(offset, offset + count, producer_id, is_transactional, marker)
        )

    def roll(self, key: PartitionKey) -> None:
        self.house.life.directory.owner.roll(key)
        self.house.pass_ms(20)

    def pass_time(self, key: PartitionKey) -> None:
        """Long enough for seals and compaction."""
        del key
        self.house.pass_ms(self.random.choice([200, 2_500, 8_000]))

    def truncate(self, key: PartitionKey) -> None:
        log, owner = self.log(key), self.house.life.directory.owner
        offset = Offset(self.random.randint(log.log_start_offset, log.log_end_offset))
        segment = log.segment_of(offset) if log.segments else None
        if segment is not None and segment.is_compacted:
            offset = segment.base_offset
        end = self.house.call(lambda: owner.truncate(log, offset, is_unclean=True))
        self.oracles[key].cut(end)

    def trim(self, key: PartitionKey) -> None:
        """By a user, who may trim an open transaction."""
        log, owner = self.log(key), self.house.life.directory.owner
        low = log.log_start_offset
        offset = Offset(low + (log.high_watermark - low) // self.random.choice([2, 3, 4]))
        self.house.call(lambda: owner.trim(log, offset))
        self.trimmed[key] = True

    def stop(self, key: PartitionKey) -> None:
        del key
        self.house.stop()
        self.start()

    def kill(self, key: PartitionKey) -> None:
        del key
        self.house.kill()
        self.start()

    def crash(self, key: PartitionKey) -> None:
        del key
        self.house.crash()
        self.start()

    def start(self) -> None:
        for key, placed in self.house.placed.items():
            self.house.placed[key] = msgspec.structs.replace(
                placed, leader_epoch=LeaderEpoch(placed.leader_epoch + 1)
            )
        self.house.begin()
        assert not self.house.life.summary.failures
        for key in KEYS:
            oracle = self.oracles[key]
            if oracle.history and oracle.history[-1].end_offset > self.log(key).log_end_offset:
                oracle.cut(self.log(key).log_end_offset)

    # -- what holds ------------------------------------------------------------------------------

    def check(self, key: PartitionKey) -> None:
        log, oracle = self.log(key), self.oracles[key]
        assert log.failure is None, log.failure
        assert not self.house.world.findings()
        check_log(log)
        self.stable.check([log])
        seen = functools.partial(seen_bytes, self.house.medium)
        assert not (violations := check_derived(log, seen, was_cut=True)), violations
        expected = oracle.stable(log.log_start_offset, log.high_watermark)
        if not self.trimmed[key]:
            assert log.last_stable_offset == expected
            started = [(each[0], each[1]) for each in oracle.transactions() if each[2] is None]
            assert sorted(log.transactions.started) == sorted(started)
        else:
            # Of what was trimmed a log that was opened again may know no beginning.
            assert log.last_stable_offset >= expected
        ends = [log.log_start_offset, log.last_stable_offset]
        begin, end = sorted(self.random.randint(*ends) for _ in range(2))
        for begin_offset, end_offset in (ends, (begin, end)):
            self._check_aborted(key, begin_offset, end_offset)
        self.counts["open"] += len(log.transactions)
        self.counts["sealed"] += sum(each.summary is not None for each in log.segments)
        self.counts["compacted"] += sum(each.is_compacted for each in log.segments)

    def _check_aborted(self, key: PartitionKey, begin: int, end: int) -> None:
        log, oracle, life = self.log(key), self.oracles[key], self.house.life
        look = functools.partial(life.directory.reader.aborted_between, log, begin, end)
        told = self.house.call(look)
        self.counts["aborted"] += len(told)
        expected = oracle.aborted(begin, end)
        if not self.trimmed[key] and key != COMPACTED:
            assert told == expected
        # As a reader filters what it is given, whatever is left of it.
        for batch in self.house.call(functools.partial(life.read_all, key)):
            for _, header in iterate_headers(batch.data, is_compacted=True):
                is_asked = begin <= header.base_offset < end
                if is_asked and header.is_transactional and not header.is_control:
                    assert _covers(told, header.producer_id, header.base_offset) == _covers(
                        expected, header.producer_id, header.base_offset
                    )


def _covers(entries: list[AbortedTransaction], producer_id: int, offset: int) -> bool:
    return any(
        each.producer_id == producer_id and each.first_offset <= offset < each.marker_offset
        for each in entries
    )


def sealed_in_a_transaction() -> Lives:
    """A transaction is open behind a segment with a sidecar, and was aborted behind the next."""
    lives = Lives(1)
    lives.house.begin()
    wrote = encode_batch(
        [(1, b"k", b"v", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    plain = encode_batch([(1, b"k", b"v", ())])
    lives.store(DELETED, wrote, 1, 1, is_transactional=True)
    for _ in range(2):
        lives.roll(DELETED)
        lives.store(DELETED, plain, -1, 1, is_transactional=False)
    lives.house.pass_ms(5_000)
    assert lives.log(DELETED).segments[0].summary is not None
    assert lives.log(DELETED).segments[1].summary is not None
    return lives


def damage(lives: Lives, place: int, section_name: str) -> None:
    summary = lives.log(DELETED).segments[place].summary
    assert summary is not None
    inode = lives.house.medium.find(summary.key.sidecar_path)
    assert isinstance(inode, Inode)
    inode.seen[find_section(summary, section_name).byte_position + 3] ^= 1


def test_a_cut_that_cannot_learn_what_is_open_stops_the_partition() -> None:
    """It would show what is aborted later."""
    lives = sealed_in_a_transaction()
    damage(lives, 1, PRODUCERS)
    log, owner = lives.log(DELETED), lives.house.life.directory.owner
    lives.store(DELETED, encode_batch([(1, b"k", b"v", ())]), -1, 1, is_transactional=False)
    with pytest.raises(TidelogError, match="which transactions are open"):
        lives.house.call(lambda: owner.truncate(log, Offset(3), is_unclean=True))
    assert log.failure is not None
    lives.house.stop()
    lives.house.close()


def test_while_a_sidecar_is_made_again_what_it_told_of_transactions_is_not_known() -> None:
    lives = sealed_in_a_transaction()
    ended = encode_marker(
        Marker(MarkerType.ABORT, 0), producer_id=1, producer_epoch=1, timestamp_ms=1
    )
    seen = functools.partial(seen_bytes, lives.house.medium)
    assert not check_derived(lives.log(DELETED), seen)
    known = lives.log(DELETED).transactions.started
    for wrong in ((), ((1, 2),), ((1, 0), (2, 1))):
        lives.log(DELETED).transactions.go_on_from(wrong)
        (violation,) = check_derived(lives.log(DELETED), seen)
        assert violation.startswith("transactions_differ")
    lives.log(DELETED).transactions.go_on_from(known)
    lives.store(DELETED, ended, 1, 1, is_transactional=True, marker=MarkerType.ABORT)
    damage(lives, 0, TRANSACTIONS)
    log, reader = lives.log(DELETED), lives.house.life.directory.reader
    with pytest.raises(TidelogError) as raised:
        lives.house.call(lambda: reader.aborted_between(log, 0, 4))
    assert raised.value.code is ErrorCode.UNAVAILABLE
    lives.house.pass_ms(5_000)
    told = lives.house.call(lambda: reader.aborted_between(log, 0, 1))
    assert told == [AbortedTransaction(1, Offset(0), 3)]
    assert log.failure is None
    lives.house.stop()
    lives.house.close()


@pytest.mark.slow
def test_what_is_told_of_transactions_is_what_all_that_was_appended_says() -> None:
    totals = dict.fromkeys(("aborted", "open", "sealed", "compacted"), 0)
    for seed in range(SEEDS):
        lives = Lives(seed)
        try:
            lives.play()
        except BaseException:
            print(f"seed {seed}")
            raise
        for name, count in lives.counts.items():
            totals[name] += count
    print(totals)
    assert all(totals.values()), totals

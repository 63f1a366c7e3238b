"""The stateful model: rules that do to a directory what clients, time and crashes do to it."""

import asyncio
import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.broker.support.log_model import Record, Sent
from tests.broker.support.log_model_directory import (
    CHECK_MS,
    COMPACTED,
    DELETE_RETENTION_MS,
    KEYS,
    REPLICATED,
    ModelledDirectory,
    awaited,
    check_out_of_range,
    first_at,
    keeping_of,
    newest_of,
    records_in,
)
from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.housekeeping.core.limits import HousekeepingLimits
from tidelog.broker.replicas.directory import Placed
from tidelog.chaos.fuzz.log_house import LogHouse
from tidelog.chaos.sim import FaultKind
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import encode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey

CRASH_KINDS = (FaultKind.LOST_WRITE, FaultKind.TORN_WRITE, FaultKind.HOLE, FaultKind.LOST_NAME)

partitions = st.sampled_from(KEYS)
parts = st.integers(0, 100)
"""Of a log, in hundredths."""
delays_us = st.one_of(st.integers(0, 300), st.integers(0, 12_000))
deaths = st.sampled_from(["kill", "crash"])
records_of = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([0, 90, 700, 2_500]),
        st.sampled_from([0, 0, 3_000, 30_000]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
"""Key, bytes of the value, age, whether it is a tombstone; of each record."""
batches_of = st.lists(
    st.tuples(partitions, records_of, st.booleans(), st.integers(-1, 1)), min_size=1, max_size=5
)
"""Partition, records, whether the flush is awaited, which producer."""
Drawn = tuple[PartitionKey, list[tuple[int, int, int, bool]], bool, int]


class LogMachine(ModelledDirectory):
    """What may be done to it."""

    # -- the directory ---------------------------------------------------------------------------

    @initialize(
        seed=st.integers(0, 1 << 30),
        floor_bytes=st.sampled_from([0, 3_000]),
        segment_bytes=st.sampled_from([1_500, 40_000]),
    )
    def begin(self, seed: int, floor_bytes: int, segment_bytes: int) -> None:
        limits = HousekeepingLimits(
            check_interval_ms=CHECK_MS,
            bytes_per_second=0,
            scrub_interval_ms=9_000,
            free_bytes_min=floor_bytes,
            free_bytes_margin=1_000,
            free_check_interval_ms=200,
            retry_backoff_ms=500,
            retry_backoff_max_ms=1_000,
        )
        self.house = LogHouse(seed, limits=limits, crash_kinds=CRASH_KINDS)
        for key in KEYS:
            settings = TopicSettings(
                segment_bytes=segment_bytes,
                retention_ms=-1,
                is_flush_sync=key != REPLICATED,
                is_compacted=key == COMPACTED,
                is_deleted=key != COMPACTED,
                min_cleanable_dirty_ratio=0.3,
                delete_retention_ms=DELETE_RETENTION_MS,
            )
            self.house.placed[key] = Placed(leader_epoch=LeaderEpoch(1), settings=settings)
            self.keepings[key] = [(0, keeping_of(settings))]
        self.house.begin()

    # -- appends ---------------------------------------------------------------------------------

    @rule(batches=batches_of)
    def append(self, batches: list[Drawn]) -> None:
        """All at once, each awaited."""
        self._step("append")
        sent, answers = self._submit(batches)
        assert self.world.wait_until(
            lambda: len(answers) == len(sent) and all(each.done() for each in answers),
            within_ms=20_000,
        ), "appends are answered"
        self._take_answers(sent, answers)

    @rule(batches=batches_of, delay_us=delays_us, death=deaths)
    def append_and_die(self, batches: list[Drawn], delay_us: int, death: str) -> None:
        """The end comes at any moment."""
        self._step("append_and_die")
        sent, answers = self._submit(batches)
        self.world.pass_ms(delay_us / 1_000)
        self._take_answers(sent, answers)
        self._die(death)

    def _submit(
        self, batches: list[Drawn]
    ) -> tuple[list[tuple[PartitionKey, Sent]], list[asyncio.Future[Appended]]]:
        """Hand them over, one behind the other; their answers are there once that is done."""
        life, sent, answers = self.world.life, list[tuple[PartitionKey, Sent]](), list[Any]()
        submitted = []
        for key, records, is_flush_awaited, producer in batches:
            each, batch = self._sealed(key, records, producer)
            self.models[key].pending.append(each)
            sent.append((key, each))
            submitted.append((key, batch, is_flush_awaited))

        async def submit() -> None:
            for key, batch, is_flush_awaited in submitted:
                answers.append(life.submit(key, batch, is_flush_awaited=is_flush_awaited))

        self.world.start(submit)
        return sent, answers

    def _take_answers(
        self, sent: list[tuple[PartitionKey, Sent]], answers: list["asyncio.Future[Appended]"]
    ) -> None:
        """In the order in which they were handed over; what was refused first."""
        answered = [each for each in zip(sent, answers, strict=False) if each[1].done()]
        for (key, each), answer in answered:
            error = answer.exception()
            if error is not None:
                assert isinstance(error, TidelogError), error
                self._check_full(error)
                self.models[key].pending.remove(each)
        for (key, each), answer in answered:
            if answer.exception() is None:
                self._stored(key, each, answer.result())

    def _sealed(
        self, key: PartitionKey, drawn: list[tuple[int, int, int, bool]], producer: int
    ) -> tuple[Sent, bytes]:
        now_ms, records = self.now_ms(), []
        for record_key, size, age_ms, is_tombstone in drawn:
            self.number += 1
            value = b"%d:" % self.number + bytes(size)
            is_none = is_tombstone and key == COMPACTED and record_key > 2
            records.append(
                Record(0, now_ms - age_ms, b"key-%d" % record_key, None if is_none else value)
            )
        # A tombstone has no value to be told apart by; the first record of a batch always has.
        records[0] = msgspec.structs.replace(
            records[0], value=records[0].value or b"%d:" % self.number
        )
        place = (key, producer)
        if place not in self.continued:
            self.epochs[place] += 1
        epoch, sequence = self.continued.pop(place, (self.epochs[place], 0))
        batch = encode_batch(
            [(each.time_ms, each.key, each.value, ()) for each in records],
            producer_id=70 + producer if producer >= 0 else -1,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
        )
        sent = Sent(tuple(records), len(batch), now_ms)
        self.sequences[id(sent)] = (place, epoch, sequence + len(records))
        return sent, batch

    def _stored(self, key: PartitionKey, sent: Sent, appended: Appended) -> None:
        model = self.models[key]
        # acks=1 is answered before what was sent earlier and waits for its flush.
        while model.pending[0] is not sent and model.end < appended.base_offset:
            model.store(model.pending.pop(0), model.end)
        model.pending.remove(sent)
        model.store(sent, appended.base_offset)
        place, epoch, behind = self.sequences[id(sent)]
        if epoch == self.epochs[place]:
            self.continued[place] = (epoch, behind)

    # -- reads -----------------------------------------------------------------------------------

    @rule(key=partitions)
    def read_everything(self, key: PartitionKey) -> None:
        self._step("read_everything")
        self._check_read(key)

    @rule(key=partitions, part=parts, max_bytes=st.sampled_from([1, 400, 5_000]))
    def read_at(self, key: PartitionKey, part: int, max_bytes: int) -> None:
        """From any offset: the batch that holds it comes first."""
        self._step("read_at")
        life, log, model = self.world.life, self.log(key), self.models[key]
        bound = log.high_watermark
        offset = self._offset_at(key, part)
        try:
            found = self.world.call(lambda: life.read(key, offset, max_bytes))
        except TidelogError as error:
            check_out_of_range(error, log, offset)
            return
        if offset >= bound:
            return
        if not found:
            assert model.is_compacted, f"{key}: nothing at {offset} below {bound}"
            return
        assert found[0].next_offset > offset, f"{key}: {offset} was asked for, {found[0]} served"
        if not model.is_compacted:
            assert found[0].base_offset == model.boundary(offset), f"{key}: another batch"
        for record in records_in(found):
            assert model.is_possible(record), f"{key}: {record} was served"

    @rule(key=partitions, part=parts, shift_ms=st.sampled_from([-1, 0, 1, 5_000]))
    def search_by_time(self, key: PartitionKey, part: int, shift_ms: int) -> None:
        self._step("search_by_time")
        life = self.world.life
        records = self._check_read(key)
        if not records:
            return
        time_ms = records[(len(records) - 1) * part // 100].time_ms + shift_ms
        found = self.world.call(lambda: life.first_at(key, time_ms))
        newest = self.world.call(lambda: life.newest(key))
        after = self._check_read(key)
        assert found in (first_at(records, time_ms), first_at(after, time_ms)), (
            f"{key}: at {time_ms} is {first_at(records, time_ms)}, found {found}"
        )
        assert newest in (newest_of(records), newest_of(after)), (
            f"{key}: the newest is {newest_of(records)}, found {newest}"
        )

    # -- the log's two ends ----------------------------------------------------------------------

    @rule(
        key=partitions,
        part=parts,
        death=st.sampled_from(["", "", "kill", "crash"]),
        delay_us=delays_us,
    )
    def trim(self, key: PartitionKey, part: int, death: str, delay_us: int) -> None:
        self._step("trim_and_die" if death else "trim")
        life, log, model = self.world.life, self.log(key), self.models[key]
        offset = Offset(min(self._offset_at(key, part), log.high_watermark))
        model.trim_asked = max(model.trim_asked, offset)
        answer = self.world.start(lambda: life.directory.owner.trim(log, offset))
        if death:
            self.world.pass_ms(delay_us / 1_000)
            if answer.done() and answer.exception() is None:
                self._check_start(key, at_least=offset)
            self._die(death)
            return
        try:
            start = self.world.call(functools.partial(awaited, answer))
        except TidelogError as error:
            self._check_full(error)
            return
        assert start >= offset, f"{key}: trimmed to {start}, not {offset}"
        self._check_start(key, at_least=offset)

    @rule(
        key=partitions,
        part=parts,
        death=st.sampled_from(["", "", "kill", "crash"]),
        delay_us=delays_us,
    )
    def truncate(self, key: PartitionKey, part: int, death: str, delay_us: int) -> None:
        """What is behind goes, by somebody's decision also what was committed."""
        self._step("truncate_and_die" if death else "truncate")
        life, log, model = self.world.life, self.log(key), self.models[key]
        offset = Offset(self._offset_at(key, part))
        end = max(model.boundary(offset) if offset < model.end else model.end, log.log_start_offset)
        answer = self.world.start(
            lambda: life.directory.owner.truncate(log, offset, is_unclean=True)
        )
        if death:
            self.world.pass_ms(delay_us / 1_000)
            if answer.done() and answer.exception() is None:
                self._check_cut(key, offset, end, answer.result())
            # Not answered: the log may end anywhere behind the cut, at a batch.
            model.certain_end = min(model.certain_end, end)
            self._die(death, cut_to=(key, end))
            return
        error = self._end_of(answer)
        for _ in range(20):
            if error is None or error.code is not ErrorCode.UNAVAILABLE:
                break
            # Retention trims it at the moment.
            self.world.pass_ms(20)
            end = max(min(end, model.end), log.log_start_offset)
            answer = self.world.start(
                lambda: life.directory.owner.truncate(log, offset, is_unclean=True)
            )
            error = self._end_of(answer)
        if error is None:
            self._check_cut(key, offset, end, answer.result())
        else:
            is_in_compacted = error.code is ErrorCode.INVALID_ARGUMENT and key == COMPACTED
            if not is_in_compacted:
                self._check_full(error)
            assert log.log_end_offset == model.end, f"{key}: refused, and cut all the same"
            model.certain_end = min(model.certain_end, log.flushed_offset)

    def _check_cut(self, key: PartitionKey, offset: int, wanted: int, end: int) -> None:
        log, model = self.log(key), self.models[key]
        if model.is_compacted:
            assert end <= max(offset, log.log_start_offset), f"{key}: cut to {end}, not {offset}"
        else:
            assert end == wanted, f"{key}: cut to {end}, not {wanted}"
        assert end == log.log_end_offset, f"{key}: it ends at {log.log_end_offset}, not {end}"
        # By size it may have been trimmed before the cut only.
        self._check_start(key)
        model.cut(end)
        self._check_read(key)

    # -- time, settings, jobs --------------------------------------------------------------------

    @rule(key=partitions)
    def roll(self, key: PartitionKey) -> None:
        self._step("roll")
        self.world.life.directory.owner.roll(key)

    @rule(seconds=st.sampled_from([0.2, 2, 6]))
    def pass_time(self, seconds: float) -> None:
        """Long enough for seals, compaction, scrubbing, retention."""
        self._step("pass_time")
        self.world.pass_ms(seconds * 1_000)
        if seconds * 1_000 >= 5 * CHECK_MS and not self.is_full():
            for key in KEYS:
                self._check_kept(key)

    @rule(delay_us=st.integers(0, 1_500_000), death=deaths)
    def work_and_die(self, delay_us: int, death: str) -> None:
        """The end comes in the middle of what housekeeping does."""
        self._step("work_and_die")
        self.world.pass_ms(delay_us / 1_000)
        self._die(death)

    @rule(
        key=partitions,
        segment_bytes=st.sampled_from([300, 1_500, 5_000, 40_000]),
        segment_ms=st.sampled_from([3_000, 1 << 40]),
        retention_ms=st.sampled_from([-1, -1, 2_000, 20_000]),
        retention_bytes=st.sampled_from([-1, -1, 0, 3_000]),
        is_flush_sync=st.booleans(),
        dirty_ratio=st.sampled_from([0.01, 0.5]),
    )
    def configure(
        self,
        key: PartitionKey,
        segment_bytes: int,
        segment_ms: int,
        retention_ms: int,
        retention_bytes: int,
        is_flush_sync: bool,
        dirty_ratio: float,
    ) -> None:
        self._step("configure")
        before = self.world.placed[key]
        settings = msgspec.structs.replace(
            before.settings,
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            is_flush_sync=is_flush_sync,
            min_cleanable_dirty_ratio=dirty_ratio,
        )
        self.world.placed[key] = msgspec.structs.replace(before, settings=settings)
        self.keepings[key].append((self.now_ms(), keeping_of(settings)))
        self.world.life.directory.configure(key, settings)

    # -- the disk is full ------------------------------------------------------------------------

    @precondition(lambda self: not self.is_full())
    @rule(room_bytes=st.sampled_from([0, 50, 600, 4_000]))
    def fill_disk(self, room_bytes: int) -> None:
        self._step("fill_disk")
        medium = self.world.medium
        medium.capacity_bytes = medium.used_bytes() + room_bytes

    @precondition(lambda self: self.is_full())
    @rule()
    def make_room(self) -> None:
        self._step("make_room")
        self._make_room()

    # -- lives -----------------------------------------------------------------------------------

    @rule()
    def stop(self) -> None:
        """In order, and started again."""
        self._step("stop")
        for key in KEYS:
            self._check_read(key)
        before = self._derived()
        self.world.stop()
        self._start(before, is_machine=False)

    @rule(death=deaths)
    def die(self, death: str) -> None:
        self._step(death)
        self._die(death)

    # -- always ----------------------------------------------------------------------------------

    @invariant()
    def offsets_are_in_order(self) -> None:
        if self.house is None:
            return
        assert self.world.is_alive, "the process has died by itself"
        assert not self.world.world.findings(), self.world.world.findings()
        for key in KEYS:
            log, model = self.log(key), self.models[key]
            assert log.failure is None, log.failure
            self._check_start(key)
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, f"{key}"
            assert log.flushed_offset <= log.log_end_offset, f"{key}: flushed behind its end"
            assert log.log_end_offset == model.end, f"{key}: {log.log_end_offset}, not {model.end}"
            self._note_flushed(key)

    def teardown(self) -> None:
        if self.house is None:
            return
        try:
            if self.house.is_alive:
                self._make_room()
                self.append([(key, [(0, 0, 0, False)], True, 0) for key in KEYS])
                for key in KEYS:
                    self._check_read(key)
        finally:
            self.house.close()

"""The directory under the stateful model: its lives, and what always has to hold of it."""

import asyncio
import functools
from collections import Counter
from typing import ClassVar, Final

import msgspec
from hypothesis.stateful import RuleBasedStateMachine

from tests.broker.support.log_model import Keeping, PartitionModel, Record
from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.log.derived import Derived, check_derived
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.fuzz.log_house import Batch, LogHouse
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.batch import decode_batch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicId

CHECK_MS = 1_000
DELETE_RETENTION_MS = 4_000
TOPIC = TopicId(bytes([5]) * 16)
SYNC, REPLICATED, COMPACTED = (PartitionKey(TOPIC, PartitionId(each)) for each in range(3))
KEYS = (SYNC, REPLICATED, COMPACTED)
ROOMY = 1 << 40


HARMLESS: Final = ("append", "pass_time", "read_at", "read_everything", "roll", "search_by_time")
"""Steps in which no batch goes that was stored."""


class ModelledDirectory(RuleBasedStateMachine):
    """One data directory with three partitions, and what is known of each."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        ModelledDirectory.steps["examples"] += 1
        self.models = {
            key: PartitionModel(
                is_compacted=key == COMPACTED, delete_retention_ms=DELETE_RETENTION_MS
            )
            for key in KEYS
        }
        self.number = 0
        self.epochs: Counter[tuple[PartitionKey, int]] = Counter()
        """Of each producer in each partition the last one that it has used."""
        self.continued: dict[tuple[PartitionKey, int], tuple[int, int]] = {}
        """Epoch and next sequence of those whose last batch is certainly there."""
        self.sequences: dict[int, tuple[tuple[PartitionKey, int], int, int]] = {}
        """Of a batch that was sent: whose it is, its epoch, and the sequence behind it."""
        self._last_step = ""
        self.epoch = 1
        self.house: LogHouse | None = None
        self.keepings: dict[PartitionKey, list[tuple[int, Keeping]]] = {}
        """Since when, and which: a trim that an earlier setting asked for may be under way."""

    @property
    def world(self) -> LogHouse:
        assert self.house is not None, "it has begun"
        return self.house

    def log(self, key: PartitionKey) -> PartitionLog:
        return self.world.life.logs[key]

    def now_ms(self) -> int:
        return self.world.life.clock.wall_ms()

    def is_full(self) -> bool:
        return self.world.medium.capacity_bytes != ROOMY

    def _check_full(self, error: TidelogError) -> None:
        check_code(error, ErrorCode.STORAGE_FULL)
        assert self.is_full(), f"refused with room on the disk: {error}"

    def _check_read(self, key: PartitionKey) -> list[Record]:
        found = self._read_all(key)
        self.models[key].check_read(found, self.log(key).high_watermark, self.now_ms())
        return found

    def _read_all(self, key: PartitionKey) -> list[Record]:
        """What is between the log's start and the high watermark, both as they are now."""
        life, log = self.world.life, self.log(key)
        for _ in range(5):
            start, bound = log.log_start_offset, log.high_watermark
            try:
                batches = self.world.call(lambda: life.read_all(key))
            except TidelogError as error:
                # Retention may overtake a reader.
                check_out_of_range(error, log, start)
                continue
            if (start, bound) == (log.log_start_offset, log.high_watermark):
                self._check_start(key)
                return [each for each in records_in(batches) if start <= each.offset < bound]
        raise AssertionError(f"{key}: the log does not come to rest")

    def _end_of(self, answer: "asyncio.Future[Offset]") -> TidelogError | None:
        """Wait for it; why it was refused."""
        try:
            self.world.call(functools.partial(awaited, answer))
        except TidelogError as error:
            return error
        return None

    def _check_kept(self, key: PartitionKey) -> None:
        """Retention has done what it has to."""
        log, settings = self.log(key), self.world.placed[key].settings
        first = next((each for each in log.segments if each.size_bytes), None)
        if key == COMPACTED or first is None or not first.is_sealed:
            return
        if first.next_offset > log.high_watermark:
            return
        if settings.retention_ms >= 0 and first.max_timestamp >= 0:
            age_ms = self.now_ms() - first.max_timestamp
            assert age_ms <= settings.retention_ms + 4 * CHECK_MS, f"{key}: {age_ms} ms old"
        if settings.retention_bytes >= 0:
            left_bytes = log.size_bytes - first.size_bytes
            assert left_bytes < settings.retention_bytes or not left_bytes, (
                f"{key}: {left_bytes} bytes behind the first segment"
            )

    def _make_room(self) -> None:
        self.world.medium.capacity_bytes = ROOMY
        # The floor is looked at now and then.
        self.world.pass_ms(500)

    def _die(self, death: str, cut_to: tuple[PartitionKey, int] | None = None) -> None:
        for key in KEYS:
            self._check_start(key)
            self._note_flushed(key)
        if cut_to is not None:
            model = self.models[cut_to[0]]
            model.certain_end = min(model.certain_end, cut_to[1])
        before = self._derived()
        self.world.crash() if death == "crash" else self.world.kill()
        self._start(before, is_machine=death == "crash", cut_to=cut_to)

    def _start(
        self,
        before: dict[PartitionKey, Derived],
        *,
        is_machine: bool,
        cut_to: tuple[PartitionKey, int] | None = None,
    ) -> None:
        self.epoch += 1
        for key, placed in self.world.placed.items():
            self.world.placed[key] = msgspec.structs.replace(
                placed, leader_epoch=LeaderEpoch(self.epoch)
            )
        try:
            self.world.begin()
        except TidelogError as error:
            self._check_full(error)
            self.world.medium.capacity_bytes = ROOMY
            self.world.begin()
        failures = self.world.life.summary.failures
        assert not failures, failures
        for key in KEYS:
            self._check_new_life(
                key, is_machine=is_machine or (cut_to is not None and cut_to[0] == key)
            )
            violations = before[key].compare(Derived(self.log(key)), str(key))
            assert not violations, violations
        self._check_derived()

    def _check_new_life(self, key: PartitionKey, *, is_machine: bool) -> None:
        log, model = self.log(key), self.models[key]
        assert log.failure is None, log.failure
        assert log.high_watermark == log.log_end_offset == log.flushed_offset, f"{key}: {log}"
        self._check_start(key)
        found = self._read_all(key)
        model.take_in_life(log.log_end_offset, found, is_machine=is_machine)
        self._check_read(key)

    def _derived(self) -> dict[PartitionKey, Derived]:
        return {key: Derived(self.log(key)) for key in KEYS}

    def _check_derived(self) -> None:
        """Indexes, epochs and producers, derived once more from the bytes."""
        for key in KEYS:
            violations = check_derived(
                self.log(key), functools.partial(seen_bytes, self.world.medium)
            )
            assert not violations, violations

    def _note_flushed(self, key: PartitionKey) -> None:
        """What the log calls flushed no crash may take."""
        model, log = self.models[key], self.log(key)
        model.certain_end = max(model.certain_end, min(log.flushed_offset, model.end))

    def _check_start(self, key: PartitionKey, *, at_least: int = 0) -> None:
        log, keepings = self.log(key), self.keepings[key]
        assert log.log_start_offset >= at_least, f"{key}: it begins at {log.log_start_offset}"
        while len(keepings) > 1 and keepings[1][0] < self.now_ms() - 3 * CHECK_MS:
            del keepings[0]
        self.models[key].move_start(
            log.log_start_offset,
            now_ms=self.now_ms(),
            keepings=[each for _, each in keepings],
            why=f"{key} {keepings}",
        )

    def _offset_at(self, key: PartitionKey, part: int) -> int:
        log = self.log(key)
        return int(log.log_start_offset + (log.log_end_offset - log.log_start_offset) * part // 100)

    def _step(self, name: str) -> None:
        # What is lost, cut or refused leaves a gap, and a new epoch begins behind it.
        if not (name in HARMLESS and self._last_step in HARMLESS):
            self.continued.clear()
        self._last_step = name
        ModelledDirectory.steps["steps"] += 1
        ModelledDirectory.steps[f"rule {name}"] += 1


async def awaited(future: "asyncio.Future[Offset]") -> Offset:
    return await future


def check_out_of_range(error: TidelogError, log: PartitionLog, offset: int) -> None:
    check_code(error, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert offset < log.log_start_offset, f"{offset} is in the log: {error}"


def check_code(error: TidelogError, code: ErrorCode) -> None:
    assert error.code is code, error


def keeping_of(settings: TopicSettings) -> Keeping:
    return Keeping(settings.retention_ms, settings.retention_bytes)


def records_in(batches: list[Batch]) -> list[Record]:
    return [
        Record(each[0], each[1], each[3], each[4])
        for batch in batches
        for each in decode_batch(batch.data, is_compacted=True)
    ]


def first_at(records: list[Record], time_ms: int) -> tuple[int, int]:
    return next(
        ((each.offset, each.time_ms) for each in records if each.time_ms >= time_ms), (-1, -1)
    )


def newest_of(records: list[Record]) -> tuple[int, int]:
    highest = max((each.time_ms for each in records), default=-1)
    return first_at(records, highest) if records else (-1, -1)

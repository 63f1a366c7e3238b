"""A directory's core under storms of transactions: late answers, stale batches, repeated markers,
full disks, new leader epochs; what is in the files is read and judged."""

import os

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.support.core_model import failure, key_of
from tests.broker.support.transactional_core import REFUSED, TransactionalCore
from tidelog.broker.directory.core.messages import (
    Appended,
    Lead,
    Refuse,
    RollSegment,
    SetFull,
    Verified,
    Verify,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch

PRODUCERS = (7, 8)


class Coordinator(msgspec.Struct):
    """What the coordinator of one producer knows."""

    epoch: int = 0
    is_added: bool = False
    is_ending: bool = False


class Marker(msgspec.Struct, frozen=True):
    """One on its way, or one that was and may come again."""

    producer_id: int
    epoch: int
    coordinator_epoch: int


Answer = tuple[Verify, TidelogError | None]


class CoreUnderTransactions(RuleBasedStateMachine):
    """One partition on one replica; the coordinators decide as theirs would."""

    @initialize(segment_bytes=st.sampled_from([250, 1 << 20]))
    def begin(self, segment_bytes: int) -> None:
        self.core = TransactionalCore(segment_bytes=segment_bytes)
        self.coordinators = {each: Coordinator() for each in PRODUCERS}
        self.coordinator_epoch = 3
        self.leader_epoch = 0
        self.added: dict[tuple[int, int], None] = {}
        self.answers: list[Answer] = []
        self.markers: list[Marker] = []
        self.waiting: dict[int, Marker] = {}
        """By token, of the markers that were submitted."""
        self.ended: dict[tuple[int, int], None] = {}
        """Transactions whose end a coordinator was told to be committed."""

    # -- producers ---------------------------------------------------------------------------------

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        back=st.integers(-1, 1),
        sequence=st.integers(0, 3),
        is_transactional=st.sampled_from([True, True, True, False]),
    )
    def send(self, producer_id: int, back: int, sequence: int, is_transactional: bool) -> None:
        """A batch of the present transaction, of the one before or after; in any order."""
        epoch = max(0, self.coordinators[producer_id].epoch - back)
        self.core.write_batch(
            epoch, sequence, producer_id=producer_id, is_transactional=is_transactional
        )

    @rule(producer_id=st.sampled_from(PRODUCERS), is_asked=st.booleans())
    def append_offsets(self, producer_id: int, is_asked: bool) -> None:
        """As a coordinator of groups: asks ahead, or appends by what it was told before."""
        epoch = self.coordinators[producer_id].epoch
        if is_asked:
            self.core.verify(epoch, producer_id=producer_id)
        else:
            self.core.append_directly(epoch, producer_id=producer_id)

    # -- coordinators ------------------------------------------------------------------------------

    @precondition(lambda self: self.core.questions)
    @rule(which=st.integers(0, 9))
    def decide(self, which: int) -> None:
        """The coordinator adds the partition, or refuses; the leader hears of it later."""
        question = self.core.questions.pop(which % len(self.core.questions))
        own = self.coordinators[question.producer_id]
        is_added = question.producer_epoch == own.epoch and not own.is_ending
        if is_added:
            own.is_added = True
            self.added[question.producer_id, own.epoch] = None
        self.answers.append((question, None if is_added else REFUSED))

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 9))
    def hear(self, which: int) -> None:
        question, error = self.answers.pop(which % len(self.answers))
        self.core.tell(
            Verified(
                key=question.key,
                producer_id=question.producer_id,
                ticket=question.ticket,
                error=error,
            )
        )

    @rule(producer_id=st.sampled_from(PRODUCERS), is_moved=st.booleans())
    def end(self, producer_id: int, is_moved: bool) -> None:
        """The present transaction is decided; perhaps another coordinator sends the marker."""
        own = self.coordinators[producer_id]
        if own.is_added:
            own.is_ending = True
            self.coordinator_epoch += is_moved
            self.markers.append(Marker(producer_id, own.epoch + 1, self.coordinator_epoch))

    @precondition(lambda self: self.markers)
    @rule(which=st.integers(0, 9), is_kept=st.booleans())
    def write_marker(self, which: int, is_kept: bool) -> None:
        """The marker arrives, perhaps not for the last time."""
        place = which % len(self.markers)
        marker = self.markers[place] if is_kept else self.markers.pop(place)
        token = self.core.mark_end(
            marker.epoch,
            producer_id=marker.producer_id,
            coordinator_epoch=marker.coordinator_epoch,
        )
        self.waiting[token] = marker

    # -- the broker --------------------------------------------------------------------------------

    @precondition(lambda self: self.core.write is not None)
    @rule(is_full=st.sampled_from([False, False, False, True]))
    def end_write(self, is_full: bool) -> None:
        self.core.end_write(failure(ErrorCode.STORAGE_FULL) if is_full else None)

    @precondition(lambda self: self.core.has_flush)
    @rule()
    def end_flush(self) -> None:
        self.core.end_flush()

    @precondition(lambda self: self.core.truncate is not None)
    @rule()
    def end_truncate(self) -> None:
        self.core.end_truncate()

    @rule(is_full=st.booleans())
    def set_full(self, is_full: bool) -> None:
        self.core.tell(SetFull(is_full=is_full))

    @rule()
    def roll(self) -> None:
        self.core.tell(RollSegment(key=key_of(0)))

    @rule(ms=st.sampled_from([1, 200, 1_000]))
    def pass_time(self, ms: int) -> None:
        self.core.pass_time(ms)

    @rule()
    def lead_anew(self) -> None:
        self.leader_epoch += 1
        self.core.tell(
            Lead(
                key=key_of(0),
                leader_epoch=LeaderEpoch(self.leader_epoch),
                others=(),
                in_sync_count=1,
                is_sole=True,
            )
        )

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def coordinators_hear_of_their_markers(self) -> None:
        for token in [each for each in self.waiting if each in self.core.answers]:
            marker, answer = self.waiting.pop(token), self.core.answers[token]
            own = self.coordinators[marker.producer_id]
            is_present = own.is_ending and marker.epoch == own.epoch + 1
            if isinstance(answer, Appended):
                assert marker.epoch <= own.epoch + own.is_ending, "nobody has decided that end"
                if is_present:
                    own.epoch += 1
                    own.is_added = own.is_ending = False
                self.ended[marker.producer_id, marker.epoch - 1] = None
            else:
                assert isinstance(answer, Refuse)
                is_old = marker.coordinator_epoch < self.coordinator_epoch
                is_past = answer.error.code in (
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.FENCED_PRODUCER_EPOCH,
                )
                assert is_old or not is_present or not is_past, f"{marker}: {answer.error}"

    @invariant()
    def the_log_holds_whole_transactions_only(self) -> None:
        for producer_id in PRODUCERS:
            self._check_producer(producer_id)

    def _check_producer(self, producer_id: int) -> None:
        newest, open_epoch, sequences = -1, -1, dict[int, int]()
        for header in self.core.headers():
            if header.producer_id != producer_id:
                continue
            epoch = header.producer_epoch
            assert epoch >= newest, f"epoch {epoch} behind {newest}"
            newest = epoch
            if header.is_control:
                assert open_epoch < epoch, "an end has one epoch more than its data"
                open_epoch = -1
                continue
            if header.is_transactional:
                assert (producer_id, epoch) in self.added, f"{producer_id}@{epoch} was not verified"
                assert open_epoch in (-1, epoch), f"{epoch} begins before {open_epoch} has ended"
                open_epoch = epoch
            else:
                assert open_epoch == -1, "a batch of no transaction in the middle of one"
            if header.base_sequence >= 0:
                expected = sequences.get(epoch, 0)
                assert header.base_sequence == expected, "each batch once, in its order"
                sequences[epoch] = expected + 1
        assert open_epoch == -1 or (producer_id, open_epoch) not in self.ended, (
            f"{producer_id}@{open_epoch} hangs: its coordinator was told that it has ended"
        )

    def teardown(self) -> None:
        """Every transaction that was begun is ended; nothing holds readers back."""
        if not hasattr(self, "core"):
            return
        self.core.tell(SetFull(is_full=False))
        for _ in range(20):
            self.core.pass_time(1_000)
            self.core.drain()
            while self.core.questions:
                self.decide(0)
            while self.answers:
                self.hear(0)
            self.core.drain()
            self.coordinators_hear_of_their_markers()
            for producer_id, own in self.coordinators.items():
                if own.is_added:
                    own.is_ending = True
                    token = self.core.mark_end(
                        own.epoch + 1,
                        producer_id=producer_id,
                        coordinator_epoch=self.coordinator_epoch,
                    )
                    self.waiting[token] = Marker(producer_id, own.epoch + 1, self.coordinator_epoch)
            self.core.drain()
            self.coordinators_hear_of_their_markers()
            self.the_log_holds_whole_transactions_only()
        assert not any(own.is_added for own in self.coordinators.values()), "an end never comes"
        log = self.core.log()
        assert log.last_stable_offset == log.high_watermark == log.log_end_offset
        assert self.core.core.is_idle
        assert all(token in self.core.answers for token in self.core.sent), "nobody waits for ever"
        verifying = self.core.core.state.partitions[key_of(0)].verifying
        assert verifying is None or not len(verifying)


CoreUnderTransactions.TestCase.settings = settings(
    max_examples=int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "60")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCoreUnderTransactions = pytest.mark.slow(CoreUnderTransactions.TestCase)

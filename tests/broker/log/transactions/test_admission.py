"""What a leader lets into its log of a transaction: traps by name, storms against a model."""

import os

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.broker.log.transactions.admission import (
    Admission,
    Append,
    AskCoordinator,
    FirstBatch,
    MarkerHere,
    MarkerVerdict,
    ProducerHere,
    WaitForAnswer,
)
from tidelog.wire.errors import ErrorCode, TidelogError

REFUSED = TidelogError(ErrorCode.CONCURRENT_TRANSACTIONS, tried="add", happened="not yet")


def batch(epoch: int, sequence: int = 0, producer_id: int = 1) -> FirstBatch:
    return FirstBatch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def marker(epoch: int, coordinator_epoch: int = 3) -> MarkerHere:
    return MarkerHere(producer_id=1, producer_epoch=epoch, coordinator_epoch=coordinator_epoch)


def here(epoch: int, *, is_open: bool = False, coordinator_epoch: int = 3) -> ProducerHere:
    return ProducerHere(epoch=epoch, is_open=is_open, coordinator_epoch=coordinator_epoch)


def code_of(call: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(TidelogError) as caught:
        call()
    return caught.value.code


def asked(admission: Admission, known: ProducerHere | None, first: FirstBatch) -> int:
    verdict = admission.judge(known, first, tried="write")
    assert isinstance(verdict, AskCoordinator)
    return verdict.ticket


def test_trap_2_a_batch_that_arrives_after_the_abort_is_refused() -> None:
    """KIP-890: it opened a transaction that nobody would end, and the last stable offset hung."""
    admission = Admission()
    for known in (None, here(5), here(5, is_open=True), here(4)):
        # Also with nothing open: it is what the batch will find.
        assert admission.judge_marker(known, marker(6), tried="end") is MarkerVerdict.APPEND
    late = code_of(lambda: admission.judge(here(6), batch(5), tried="write"))
    assert late is ErrorCode.TRANSACTION_ABORTED
    assert len(admission) == 0


def test_trap_3_a_marker_between_verification_and_append_is_seen_in_the_appends_turn() -> None:
    """KAFKA-14884: the batch was verified, the abort came first, it was appended all the same."""
    admission = Admission()
    admission.on_answer(1, asked(admission, None, batch(5)), None)
    admission.on_marker(1, 6)
    for known in (here(6), None):
        code = code_of(lambda known=known: admission.admit(known, batch(5), tried="write"))
        assert code in (ErrorCode.TRANSACTION_ABORTED, ErrorCode.CONCURRENT_TRANSACTIONS)


def test_trap_4_the_lowest_sequence_that_was_verified_comes_first() -> None:
    """KAFKA-14884: a later one was appended before it, and the first one looked like a gap."""
    admission = Admission()
    ticket = asked(admission, None, batch(5, 4))
    for sequence in (0, 8):
        verdict = admission.judge(None, batch(5, sequence), tried="write")
        assert verdict == WaitForAnswer(ticket)
    admission.on_answer(1, ticket, None)
    for sequence in (4, 8):
        later = batch(5, sequence)
        code = code_of(lambda later=later: admission.admit(None, later, tried="write"))
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    admission.admit(None, batch(5, 0), tried="write")
    admission.on_batch(1, 5)
    admission.admit(here(5, is_open=True), batch(5, 4), tried="write")
    assert len(admission) == 0


def test_trap_5_the_leader_itself_waits_for_the_end_of_the_transaction_before() -> None:
    """KAFKA-18575."""
    admission = Admission()
    code = code_of(lambda: admission.judge(here(5, is_open=True), batch(6), tried="write"))
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(admission) == 0


def test_traps_6_and_11_an_older_epoch_is_refused_without_asking_and_is_not_fenced() -> None:
    """KAFKA-19690, KAFKA-18042."""
    admission = Admission()
    for known in (here(6), here(6, is_open=True)):
        with pytest.raises(TidelogError) as caught:
            admission.judge(known, batch(5), tried="write")
        assert caught.value.txn_requires_abort
        assert not caught.value.fatal
    asked(admission, None, batch(6))
    assert code_of(lambda: admission.judge(None, batch(5), tried="write")) is (
        ErrorCode.TRANSACTION_ABORTED
    )


def test_trap_19_a_marker_of_an_older_coordinator_is_refused() -> None:
    admission = Admission()
    known = here(5, is_open=True)
    assert code_of(lambda: admission.judge_marker(known, marker(6, 2), tried="end")) is (
        ErrorCode.NOT_COORDINATOR
    )
    assert admission.judge_marker(known, marker(6, 3), tried="end") is MarkerVerdict.APPEND


def test_a_marker_that_is_there_already_is_a_success_and_no_older_one_is() -> None:
    """KAFKA-19999; trap 20 for a partition that has forgotten the producer."""
    admission = Admission()
    for coordinator_epoch in (3, 4):
        again = marker(6, coordinator_epoch)
        verdict = admission.judge_marker(here(6), again, tried="end")
        assert verdict is MarkerVerdict.ALREADY_THERE
    assert admission.judge_marker(None, marker(6), tried="end") is MarkerVerdict.APPEND
    assert code_of(lambda: admission.judge_marker(here(7), marker(6), tried="end")) is (
        ErrorCode.FENCED_PRODUCER_EPOCH
    )
    known = here(6, is_open=True)
    assert code_of(lambda: admission.judge_marker(known, marker(6), tried="end")) is (
        ErrorCode.INVALID_TRANSACTION_STATE
    )


def test_the_marker_before_takes_no_verification_of_the_transaction_behind_it() -> None:
    admission = Admission()
    ticket = asked(admission, here(6), batch(6))
    admission.on_marker(1, 6)
    admission.on_answer(1, ticket, None)
    admission.admit(here(6), batch(6), tried="write")


def test_an_answer_of_before_a_change_of_leaders_verifies_nothing() -> None:
    admission = Admission()
    old = asked(admission, None, batch(5))
    admission.clear()
    new = asked(admission, None, batch(6))
    assert new != old
    admission.on_answer(1, old, None)
    code = code_of(lambda: admission.admit(None, batch(6), tried="write"))
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS


class Entry(msgspec.Struct, frozen=True):
    """One batch of the log, in order."""

    producer_id: int
    epoch: int
    sequence: int
    """-1: a marker."""
    coordinator_epoch: int = -1


class Coordinator(msgspec.Struct):
    """What the coordinator of one producer knows."""

    epoch: int = 0
    is_added: bool = False
    is_ending: bool = False


def known_of(log: list[Entry], producer_id: int) -> ProducerHere | None:
    """Read from the log's beginning."""
    epoch, is_open, coordinator_epoch = -1, False, -1
    for each in log:
        if each.producer_id == producer_id:
            epoch = max(epoch, each.epoch)
            is_open = each.sequence >= 0
            if each.sequence < 0:
                coordinator_epoch = each.coordinator_epoch
    if epoch < 0:
        return None
    return ProducerHere(epoch=epoch, is_open=is_open, coordinator_epoch=coordinator_epoch)


class AdmissionModel(RuleBasedStateMachine):
    """One partition, its leaders, two producers, their coordinator; every message may be late."""

    @initialize()
    def begin(self) -> None:
        self.log: list[Entry] = []
        self.admission = Admission()
        self.coordinators = [Coordinator(), Coordinator()]
        self.coordinator_epoch = 0
        self.added: dict[tuple[int, int], None] = {}
        self.questions: list[tuple[FirstBatch, int]] = []
        self.answers: list[tuple[int, int, TidelogError | None]] = []
        self.waiting: list[tuple[FirstBatch, int]] = []
        self.turns: list[FirstBatch] = []
        self.markers: list[MarkerHere] = []

    def _here(self, producer_id: int) -> ProducerHere | None:
        return known_of(self.log, producer_id)

    @rule(producer_id=st.integers(0, 1), back=st.integers(0, 1), ahead=st.integers(0, 2))
    def send(self, producer_id: int, back: int, ahead: int) -> None:
        """A batch of the present transaction, or one that was delayed."""
        epoch = max(0, self.coordinators[producer_id].epoch - back)
        stored = [e for e in self.log if (e.producer_id, e.epoch) == (producer_id, epoch)]
        sent = batch(epoch, sum(e.sequence >= 0 for e in stored) + ahead, producer_id)
        try:
            verdict = self.admission.judge(self._here(producer_id), sent, tried="write")
        except TidelogError:
            return
        match verdict:
            case Append():
                self.turns.append(sent)
            case AskCoordinator():
                self.questions.append((sent, verdict.ticket))
                self.waiting.append((sent, verdict.ticket))
            case WaitForAnswer():
                self.waiting.append((sent, verdict.ticket))

    @precondition(lambda self: self.questions)
    @rule(which=st.integers(0, 9))
    def answer(self, which: int) -> None:
        """The coordinator adds the partition, or refuses; the leader hears of it later."""
        asked_for, ticket = self.questions.pop(which % len(self.questions))
        own = self.coordinators[asked_for.producer_id]
        is_added = asked_for.producer_epoch == own.epoch and not own.is_ending
        if is_added:
            own.is_added = True
            self.added[asked_for.producer_id, own.epoch] = None
        self.answers.append((asked_for.producer_id, ticket, None if is_added else REFUSED))

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 9))
    def hear(self, which: int) -> None:
        producer_id, ticket, error = self.answers.pop(which % len(self.answers))
        self.admission.on_answer(producer_id, ticket, error)
        heard = [sent for sent, waits_for in self.waiting if waits_for == ticket]
        self.waiting = [each for each in self.waiting if each[1] != ticket]
        if error is None:
            self.turns += heard

    @precondition(lambda self: self.turns)
    @rule(which=st.integers(0, 9))
    def append(self, which: int) -> None:
        """In any order; sequences are judged as for every producer."""
        sent = self.turns.pop(which % len(self.turns))
        try:
            self.admission.admit(self._here(sent.producer_id), sent, tried="write")
        except TidelogError:
            return
        stored = [
            each
            for each in self.log
            if (each.producer_id, each.epoch) == (sent.producer_id, sent.producer_epoch)
        ]
        if sent.base_sequence == sum(each.sequence >= 0 for each in stored):
            self.log.append(Entry(sent.producer_id, sent.producer_epoch, sent.base_sequence))
            self.admission.on_batch(sent.producer_id, sent.producer_epoch)

    @rule(producer_id=st.integers(0, 1), is_twice=st.booleans())
    def end(self, producer_id: int, is_twice: bool) -> None:
        """The present transaction is decided, or its marker is sent once more."""
        own = self.coordinators[producer_id]
        if own.is_added:
            own.is_ending = True
            sent = MarkerHere(
                producer_id=producer_id,
                producer_epoch=own.epoch + 1,
                coordinator_epoch=self.coordinator_epoch,
            )
            self.markers += [sent] * (2 if is_twice else 1)

    @precondition(lambda self: self.markers)
    @rule(which=st.integers(0, 9))
    def write_marker(self, which: int) -> None:
        self._write_marker(self.markers.pop(which % len(self.markers)))

    def _write_marker(self, sent: MarkerHere) -> None:
        own = self.coordinators[sent.producer_id]
        is_present = own.is_ending and sent.producer_epoch == own.epoch + 1
        verdict: MarkerVerdict | None = None
        refusal = ErrorCode.UNKNOWN
        try:
            verdict = self.admission.judge_marker(self._here(sent.producer_id), sent, tried="end")
        except TidelogError as error:
            refusal = error.code
        if verdict is None:
            is_old = sent.coordinator_epoch < self.coordinator_epoch
            assert is_old or not is_present, f"{sent} is refused: {refusal.name}"
            return
        if verdict is MarkerVerdict.APPEND:
            assert is_present, f"{sent} is appended, and {own} is what the coordinator has"
            self.log.append(
                Entry(sent.producer_id, sent.producer_epoch, -1, sent.coordinator_epoch)
            )
            self.admission.on_marker(sent.producer_id, sent.producer_epoch)
        if is_present:
            own.epoch += 1
            own.is_added = own.is_ending = False

    @rule()
    def change_coordinators(self) -> None:
        self.coordinator_epoch += 1

    @rule()
    def change_leaders(self) -> None:
        """The log stays; what was being verified does not, and answers come all the same."""
        self.admission.clear()
        self.turns.clear()

    @invariant()
    def every_transaction_stands_by_itself(self) -> None:
        """Its batches in order, then its marker, and nothing of it behind."""
        open_epochs: dict[int, int] = {}
        ended: dict[int, int] = {}
        for each in self.log:
            present = open_epochs.get(each.producer_id)
            if each.sequence < 0:
                assert present in (None, each.epoch - 1), f"{each} ends epoch {present}"
                open_epochs.pop(each.producer_id, None)
                assert each.epoch > ended.get(each.producer_id, -1), f"{each} stands twice"
                ended[each.producer_id] = each.epoch
                continue
            assert (each.producer_id, each.epoch) in self.added, f"{each} was never verified"
            assert present in (None, each.epoch), f"{each} within epoch {present}"
            assert each.epoch >= ended.get(each.producer_id, 0), f"{each} behind its end"
            open_epochs[each.producer_id] = each.epoch

    def teardown(self) -> None:
        self.coordinator_epoch += 1
        for producer_id, own in enumerate(self.coordinators):
            if own.is_added:
                own.is_ending = True
                self._write_marker(
                    MarkerHere(
                        producer_id=producer_id,
                        producer_epoch=own.epoch + 1,
                        coordinator_epoch=self.coordinator_epoch,
                    )
                )
            known = self._here(producer_id)
            assert known is None or not known.is_open, f"producer {producer_id} hangs: {known}"


TestAdmissionModel = pytest.mark.slow(AdmissionModel.TestCase)
TestAdmissionModel.settings = settings(
    max_examples=int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "100")),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

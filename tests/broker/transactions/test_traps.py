"""Traps that others fell into, each a test that is red when the guard against it is taken out.

The numbers are Kafka's and Redpanda's where they have one. What of them is for leaders of
partitions, for coordinators of groups and for clients is tested there.
"""

from collections.abc import Callable

import pytest

from tests.broker.transactions.support.house import FIRST_ID, House, born, identity, key
from tests.broker.transactions.support.requests import (
    A0,
    A1,
    B0,
    LAST_EPOCH,
    WALL_MS,
    abort,
    add,
    begun,
    commit,
    init,
    prepare,
    worn_out,
)
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    AddPartitionsAnswer,
    DescribeTransactionAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    DescribeTransaction,
    EndTransaction,
    InitTransactionalProducer,
    TransactionSettings,
)
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.states import Decision, TransactionState
from tidelog.wire.errors import ErrorCode


def test_trap_1_a_delayed_end_does_not_decide_the_next_transaction() -> None:
    """KAFKA-17754: the end of a transaction arrived when the next one had begun, and decided it."""
    for delayed in (commit, abort):
        for first in (commit, abort):
            house = House()
            by = begun(house)
            after = house.ask(first(by), EndAnswer).identity
            house.ask(add(after, A1), AddPartitionsAnswer)
            assert house.refusal(delayed(by)) is ErrorCode.FENCED_PRODUCER_EPOCH
            value = house.value("t")
            assert (value.state, value.current) == (TransactionState.ONGOING, after)


def test_trap_1_a_delayed_addition_does_not_extend_or_begin_the_next_transaction() -> None:
    house = House()
    by = begun(house)
    after = house.ask(commit(by), EndAnswer).identity
    assert house.refusal(add(by, A1)) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert house.value("t").is_idle
    house.ask(add(after, B0), AddPartitionsAnswer)
    assert house.refusal(add(by, A1)) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert list(house.core.transactions.by_id["t"].keys) == [B0]


def test_trap_1_a_delayed_takeover_with_an_expected_identity_aborts_nothing() -> None:
    house = House()
    by = begun(house)
    after = house.ask(commit(by), EndAnswer).identity
    house.ask(add(after), AddPartitionsAnswer)
    assert house.refusal(init(by)) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert house.value("t").state is TransactionState.ONGOING


def test_trap_5_the_next_transaction_waits_until_the_one_before_is_complete() -> None:
    """KAFKA-18575, the coordinator's part: its markers are not all there."""
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    after = house.ask(commit(by), EndAnswer).identity
    assert house.refusal(add(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(commit(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(prepare(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(init(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    house.answer_all()
    house.ask(add(after), AddPartitionsAnswer)


@pytest.mark.parametrize("how", ["timeout", "operator"])
def test_trap_6_who_stalled_past_the_timeout_can_go_on(how: str) -> None:
    """KAFKA-19690: it was told that it is fenced, and nobody had fenced it."""
    house = House()
    by = begun(house)
    if how == "timeout":
        house.pass_time(60_000)
    else:
        house.ask(AbortTransaction(transactional_id="t"), AbortAnswer)
    for request in (add(by, A1), commit(by), abort(by), prepare(by)):
        assert house.refusal(request) is ErrorCode.TRANSACTION_ABORTED
    after = house.ask(init(by), InitAnswer).identity
    assert house.ask(init(by), InitAnswer).identity == after
    house.ask(add(after), AddPartitionsAnswer)


def test_trap_7_a_takeover_of_the_last_epoch_takes_one_epoch() -> None:
    """KAFKA-19367: it was raised once to fence and once to abort, and passed 32,767."""
    house = worn_out()
    house.are_leaders_up = False
    house.ask(add(LAST_EPOCH), AddPartitionsAnswer)
    assert house.refusal(init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert [each.identity for each in house.sent] == [identity(7, 32_767)]
    house.answer_all()
    assert house.ask(init(), InitAnswer).identity.producer_id >= FIRST_ID


def test_trap_7_a_takeover_in_the_middle_takes_one_epoch() -> None:
    house = House()
    by = begun(house)
    assert house.refusal(init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.value("t").current == identity(by.producer_id, by.producer_epoch + 1)


def test_trap_8_the_answer_of_the_last_epoch_carries_the_next_producer_id() -> None:
    """KAFKA-18660: and whoever asks under it meanwhile is told to ask again."""
    house = worn_out()
    house.are_leaders_up = False
    house.ask(add(LAST_EPOCH), AddPartitionsAnswer)
    after = house.ask(commit(LAST_EPOCH), EndAnswer).identity
    assert after == identity(FIRST_ID, 0)
    assert house.value("t").next_producer_id == FIRST_ID
    assert house.refusal(add(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.refusal(commit(after)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert house.ask(commit(LAST_EPOCH), EndAnswer).identity == after
    house.fail_over()
    assert house.ask(commit(LAST_EPOCH), EndAnswer).identity == after
    house.answer_all()
    house.ask(add(after), AddPartitionsAnswer)


def test_trap_9_a_timeout_at_the_last_epoch_beside_a_delayed_abort_rotates() -> None:
    """KAFKA-20090: the rotation was skipped, and the transaction stayed open for ever."""
    house = worn_out()
    house.are_leaders_up = False
    house.ask(add(LAST_EPOCH), AddPartitionsAnswer)
    house.pass_time(60_000)
    assert house.refusal(abort(LAST_EPOCH)) is ErrorCode.TRANSACTION_ABORTED
    assert house.value("t").next_producer_id == FIRST_ID
    house.fail_over()
    assert house.sent[-1].identity == identity(7, 32_767)
    house.answer_all()
    assert house.refusal(abort(LAST_EPOCH)) is ErrorCode.TRANSACTION_ABORTED
    assert house.value("t").state is TransactionState.COMPLETE_ABORT
    assert house.ask(init(LAST_EPOCH), InitAnswer).identity == identity(FIRST_ID, 0)


def test_trap_9_a_timeout_at_the_last_epoch_waits_for_a_producer_id_and_is_not_left_out() -> None:
    house = worn_out()
    house.ask(add(LAST_EPOCH), AddPartitionsAnswer)
    house.is_granting = False
    house.fail_over()
    house.pass_time(600_000)
    assert house.value("t").state is TransactionState.ONGOING
    house.grant(1)
    house.pass_time(limits.PRODUCER_ID_WAIT_MS)
    assert house.value("t").state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("end", [commit, abort])
@pytest.mark.parametrize("first", [identity(7, 0), identity(7, 32_765), LAST_EPOCH])
def test_trap_10_an_end_of_nothing_works(
    end: Callable[[Identity], EndTransaction], first: Identity
) -> None:
    """KAFKA-18401; it brings a new epoch like any other end, and can be sent again."""
    house = House(log=(born("t", first, WALL_MS),))
    after = house.ask(end(first), EndAnswer).identity
    assert after != first
    assert house.ask(end(first), EndAnswer).identity == after
    assert house.value("t").is_idle
    again = house.ask(end(after), EndAnswer).identity
    assert again not in (first, after)
    assert not house.sent


def test_trap_16_a_transaction_ends_at_its_own_timeout_and_names_what_it_waits_for() -> None:
    """KIP-447, the coordinator's part: a member that waits for staged offsets waits no longer."""
    house = House(a=1, __groups=4)
    by = house.ask(init(), InitAnswer).identity
    offsets = key("__groups", 3)
    house.ask(add(by, offsets), AddPartitionsAnswer)
    house.are_leaders_up = False
    house.pass_time(60_000)
    [marker] = house.sent
    assert (marker.keys, marker.decision) == ((offsets,), Decision.ABORT)
    told = house.ask(DescribeTransaction(transactional_id="t"), DescribeTransactionAnswer)
    assert told.waits_for == (offsets,)


def test_trap_19_a_later_coordinator_has_a_higher_epoch_and_an_older_one_steps_down() -> None:
    """KAFKA-9144, the coordinator's part: it neither asks again nor goes on."""
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    house.ask(commit(by), EndAnswer)
    house.fail_over()
    assert [each.coordinator_epoch for each in house.sent] == [1, 2]
    house.answer_all(ErrorCode.NOT_COORDINATOR, is_taken=False)
    assert house.is_deposed
    assert house.refusal(init(name="u")) is ErrorCode.NOT_COORDINATOR
    assert house.core.next_deadline_ms() > house.now_ms
    house.tick()
    assert len(house.sent) == 2


def test_trap_20_a_marker_for_a_partition_that_has_it_completes_the_transaction() -> None:
    """Redpanda 21340, the coordinator's part: the record of the completion was lost."""
    house = House()
    by = begun(house)
    house.is_auto = False
    house.send(commit(by))
    house.commit(1)
    assert house.ends, "its completion is on the way to the log"
    house.fail_over()
    assert [each.identity for each in house.sent] == [identity(by.producer_id, 1)] * 2
    house.commit(len(house.ends))
    assert house.value("t").state is TransactionState.COMPLETE_COMMIT
    assert len(house.leaders.written) == 1


def _added(house: House) -> None:
    house.ask(add(house.ask(init(), InitAnswer).identity), AddPartitionsAnswer)


def _second(house: House) -> None:
    after = house.ask(commit(begun(house)), EndAnswer).identity
    house.pass_time(59_000)
    house.ask(add(after), AddPartitionsAnswer)


def _loaded(house: House) -> None:
    begun(house)
    house.fail_over()


def _extended(house: House) -> None:
    by = begun(house)
    house.pass_time(59_000)
    house.ask(add(by, A1), AddPartitionsAnswer)


def _expected_again(house: House) -> None:
    by = begun(house)
    house.pass_time(60_000)
    house.ask(add(house.ask(init(by), InitAnswer).identity), AddPartitionsAnswer)


def _rotated(house: House) -> None:
    house.ask(add(LAST_EPOCH, name="worn"), AddPartitionsAnswer)
    after = house.ask(commit(LAST_EPOCH, name="worn"), EndAnswer).identity
    house.ask(add(after, name="worn"), AddPartitionsAnswer)


@pytest.mark.parametrize(
    "open_one", [_added, _second, _loaded, _extended, _expected_again, _rotated]
)
def test_trap_23_a_transaction_in_progress_times_out_however_it_came_to_be(
    open_one: Callable[[House], None],
) -> None:
    """Redpanda 8236 and 14624: those of a certain path never did."""
    house = House(log=(born("worn", LAST_EPOCH, WALL_MS),))
    open_one(house)
    states = [each.value.state for each in house.core.transactions.by_id.values()]
    assert TransactionState.ONGOING in states
    house.pass_time(60_000)
    assert all(each.value.is_idle for each in house.core.transactions.by_id.values())
    assert NoteKind.TIMED_OUT in [each.kind for each in house.core.notes.take()]


def test_trap_23_additions_do_not_put_the_timeout_off() -> None:
    house = House()
    by = begun(house)
    house.pass_time(59_999)
    house.ask(add(by, A1), AddPartitionsAnswer)
    house.pass_time(1)
    assert house.value("t").is_idle


def test_trap_30_transactional_ids_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONAL_IDS_MAX", 2)
    house = House()
    house.ask(init(name="one"), InitAnswer)
    house.ask(init(name="two"), InitAnswer)
    refused = house.refused(init(name="three"))
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "TRANSACTIONAL_IDS_MAX" in refused.happened
    house.ask(init(name="one"), InitAnswer)


def test_trap_30_partitions_of_a_transaction_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_PER_TRANSACTION_MAX", 2)
    house = House()
    by = house.ask(init(), InitAnswer).identity
    house.ask(add(by, A0, A1), AddPartitionsAnswer)
    refused = house.refused(add(by, A0, B0))
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "PARTITIONS_PER_TRANSACTION_MAX" in refused.happened
    house.ask(add(by, A1), AddPartitionsAnswer)
    house.ask(commit(by), EndAnswer)


def test_trap_30_a_timeout_is_limited() -> None:
    house = House(settings=TransactionSettings(timeout_ms_max=1_000, timeout_ms_default=60_000))
    too_long = InitTransactionalProducer(transactional_id="t", transaction_timeout_ms=1_001)
    assert house.refusal(too_long) is ErrorCode.INVALID_ARGUMENT
    house.ask(init(), InitAnswer)
    assert house.value("t").timeout_ms == 1_000


@pytest.mark.parametrize("arrived", [True, False])
def test_trap_33_after_an_end_of_unknown_outcome_a_new_epoch_is_to_be_had(arrived: bool) -> None:
    """Whether the end arrived or not, its holder gets on and its ghost does not."""
    house = House()
    by = begun(house)
    if arrived:
        house.send(commit(by))
    else:
        assert house.refusal(init(by)) is ErrorCode.CONCURRENT_TRANSACTIONS
    after = house.ask(init(by), InitAnswer).identity
    assert after.producer_epoch == by.producer_epoch + 1
    house.ask(add(after), AddPartitionsAnswer)
    for ghost in (commit(by), abort(by), init(by), add(by)):
        assert house.refusal(ghost) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert house.value("t").state is TransactionState.ONGOING

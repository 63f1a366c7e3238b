"""The coordinator's promises one by one; scenarios are in `scripts`, storms in the model."""

from tests.broker.transactions.support.house import House, identity, key
from tests.broker.transactions.support.leaders import refusal
from tests.broker.transactions.support.requests import (
    A0,
    A1,
    B0,
    abort,
    add,
    begun,
    commit,
    init,
    prepare,
)
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    EndAnswer,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    InitTransactionalProducer,
    TransactionSettings,
)
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.states import Decision, TransactionState
from tidelog.wire.errors import ErrorCode


def test_a_marker_whose_answers_are_lost_is_sent_again_unchanged_until_one_arrives() -> None:
    """KAFKA-19999: the repetition carried what the leader had stored, and was refused for ever."""
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    house.ask(commit(by), EndAnswer)
    for _ in range(20):
        house.answer_all(ErrorCode.DEADLINE_EXCEEDED)
        house.pass_time(limits.MARKER_BACKOFF_MS_MAX)
    house.fail_over()
    house.answer_all()
    assert house.value("t").state is TransactionState.COMPLETE_COMMIT
    assert {(each.identity, each.decision) for each in house.sent} == {
        (identity(by.producer_id, 1), Decision.COMMIT)
    }
    assert len(house.leaders.written) == 1


def test_an_end_that_does_not_come_forward_is_noted_and_goes_on() -> None:
    house = House()
    house.are_leaders_up = False
    by = begun(house)
    house.ask(commit(by), EndAnswer)
    for _ in range(limits.MARKER_ATTEMPTS_NOTED):
        house.answer_all(ErrorCode.FENCED_PRODUCER_EPOCH, is_taken=False)
        house.pass_time(limits.MARKER_BACKOFF_MS_MAX)
    assert [each.kind for each in house.core.notes.take()] == [NoteKind.MARKERS_STUCK]
    house.answer_all()
    assert house.value("t").is_idle


def test_no_marker_leaves_before_its_decision_is_committed() -> None:
    house = House()
    by = begun(house)
    house.is_auto = False
    house.send(commit(by))
    house.pass_time(10_000)
    assert not house.sent
    house.fail_over()
    assert house.value("t").state is TransactionState.ONGOING
    assert not house.leaders.written


def test_yes_is_not_said_before_the_partition_is_committed() -> None:
    house = House()
    by = house.ask(init(), InitAnswer).identity
    house.is_auto = False
    first, again = house.send(add(by)), house.send(add(by))
    verified = house.send(add(by, verify_only=True))
    assert not house.answers
    house.fail_over()
    assert all(house.answers[each] == house.answers[first] for each in (first, again, verified))
    assert not house.value("t").topics


def test_a_leader_that_knows_no_such_topic_is_not_believed() -> None:
    """Its metadata may be older than the topic; its part of the transaction would hang."""
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    house.ask(commit(by), EndAnswer)
    house.answer_all(ErrorCode.UNKNOWN_TOPIC_ID, is_taken=False)
    house.pass_time(limits.MARKER_BACKOFF_MS_MAX)
    assert house.value("t").state is TransactionState.PREPARE_COMMIT
    house.delete_topic("a")
    assert house.value("t").state is TransactionState.COMPLETE_COMMIT


def test_a_partition_that_the_coordinator_does_not_know_is_not_added() -> None:
    """Otherwise it would be taken for deleted when its marker is due."""
    house = House()
    by = house.ask(init(), InitAnswer).identity
    assert house.refusal(add(by, A0, key("new", 0))) is ErrorCode.UNKNOWN_TOPIC_ID
    assert house.refusal(add(by, A0, key("a", 3))) is ErrorCode.UNKNOWN_PARTITION
    assert house.value("t").is_idle
    house.set_topic("new", 1)
    house.ask(add(by, A0, key("new", 0)), AddPartitionsAnswer)


def test_an_answer_to_a_marker_of_an_earlier_transaction_completes_nothing() -> None:
    house = House()
    by = begun(house)
    house.are_leaders_up = False
    after = house.ask(commit(by), EndAnswer).identity
    first = house.sent[-1]
    house.answer_all()
    house.ask(add(after), AddPartitionsAnswer)
    house.ask(abort(after), EndAnswer)
    house.sends[first.send_id] = first
    house.answer_markers(first.send_id, first.keys, is_taken=False)
    assert house.value("t").state is TransactionState.PREPARE_ABORT


def test_a_second_answer_to_an_earlier_sending_says_nothing_of_the_later_one() -> None:
    house = House()
    by = begun(house)
    house.ask(add(by, A1), AddPartitionsAnswer)
    house.are_leaders_up = False
    house.ask(commit(by), EndAnswer)
    first = house.sent[-1]
    refused = refusal(ErrorCode.NOT_LEADER)
    house.answer_markers(first.send_id, (A0,), refused, is_taken=False)
    house.pass_time(limits.MARKER_BACKOFF_MS_MIN)
    assert house.sent[-1].keys == (A0,)
    house.sends[first.send_id] = first
    house.answer_markers(first.send_id, (A0,), is_taken=False)
    transaction = house.core.transactions.by_id["t"]
    assert transaction.markers is not None
    assert list(transaction.markers.waiting) == [A0, A1]


def test_an_answer_for_a_topic_that_was_deleted_meanwhile_says_nothing() -> None:
    for keys in ((A0,), (A0, B0)):
        house = House()
        by = begun(house)
        house.ask(add(by, *keys), AddPartitionsAnswer)
        house.are_leaders_up = False
        house.ask(commit(by), EndAnswer)
        [marker] = house.sent
        house.delete_topic("a")
        assert house.value("t").is_idle == (keys == (A0,))
        house.answer_markers(marker.send_id, (A0,), refusal(ErrorCode.NOT_LEADER), is_taken=False)
        for rest in list(house.sends):
            house.answer_markers(rest, house.sends[rest].keys)
        assert house.value("t").is_idle


def test_two_processes_that_take_over_together_get_two_identities() -> None:
    house = House()
    begun(house)
    house.are_leaders_up = False
    for _ in range(2):
        assert house.refusal(init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    house.answer_all()
    one, two = (house.ask(init(), InitAnswer).identity for _ in range(2))
    assert one != two
    assert house.refusal(add(one)) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert house.refusal(init(one)) is ErrorCode.FENCED_PRODUCER_EPOCH
    house.ask(add(two), AddPartitionsAnswer)


def test_an_id_is_forgotten_only_when_idle_and_begins_again_under_another_producer_id() -> None:
    house = House(settings=TransactionSettings(id_expiration_ms=1_000))
    old = house.ask(init(), InitAnswer).identity
    house.may_expire = False
    house.pass_time(limits.EXPIRY_INTERVAL_MS)
    assert "t" in house.core.transactions.by_id
    house.may_expire = True
    house.pass_time(limits.EXPIRY_INTERVAL_MS)
    assert "t" not in house.core.transactions.by_id
    for request in (add(old), commit(old), prepare(old)):
        assert house.refusal(request) is ErrorCode.FENCED_PRODUCER_EPOCH
    assert house.ask(init(old), InitAnswer).identity.producer_id != old.producer_id


def test_what_is_not_finished_is_never_forgotten() -> None:
    house = House(settings=TransactionSettings(id_expiration_ms=1, timeout_ms_max=10**9))
    house.are_leaders_up = False
    for name in ("open", "ready", "ending"):
        asked = InitTransactionalProducer(transactional_id=name, transaction_timeout_ms=10**9)
        by = house.ask(asked, InitAnswer).identity
        house.ask(add(by, name=name), AddPartitionsAnswer)
        if name == "ready":
            house.ask(prepare(by, name=name), PrepareAnswer)
        if name == "ending":
            house.ask(commit(by, name=name), EndAnswer)
    house.pass_time(3 * limits.EXPIRY_INTERVAL_MS)
    assert sorted(house.core.transactions.by_id) == ["ending", "open", "ready"]

"""Trap 32, commits in two phases: what is prepared stands until its token decides."""

from collections.abc import Callable

import pytest

from tests.broker.transactions.support.house import House
from tests.broker.transactions.support.requests import (
    A1,
    abort,
    add,
    begun,
    commit,
    decide,
    init,
    prepare,
)
from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    AddPartitionsAnswer,
    DecideAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    ListTransactionsAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    EndTransaction,
    ListTransactions,
    PreparedElsewhere,
)
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.states import Decision, TransactionState
from tidelog.wire.errors import ErrorCode


def _ready(house: House, count: int, principal: str, first: int = 0) -> None:
    for n in range(first, first + count):
        by = house.ask(init(name=f"{principal}{n}"), InitAnswer).identity
        house.ask(prepare(by, name=f"{principal}{n}", principal=principal), PrepareAnswer)


def test_trap_32_prepared_transactions_are_limited_for_a_principal_and_for_the_cluster() -> None:
    house = House()
    house.is_rebuilt_checked = False
    _ready(house, 7, "alice")
    house.step(PreparedElsewhere(by_principal={"alice": 3, "carol": 80}))
    by = house.ask(init(), InitAnswer).identity
    refused = house.refused(prepare(by))
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "PREPARED_PER_PRINCIPAL_MAX" in refused.happened
    _ready(house, 10, "bob")
    refused = house.refused(prepare(by, principal="dora"))
    assert refused.code is ErrorCode.RESOURCE_EXHAUSTED
    assert "PREPARED_PER_CLUSTER_MAX" in refused.happened
    house.ask(prepare(house.value("bob0").current, "bob0", "bob"), PrepareAnswer)
    house.ask(decide(house.value("bob0").current, Decision.COMMIT, "bob0"), DecideAnswer)
    house.ask(prepare(by, principal="dora"), PrepareAnswer)


def test_trap_32_a_prepared_transaction_has_no_timeout_is_listed_and_is_noted() -> None:
    house = House()
    by = begun(house)
    house.ask(prepare(by), PrepareAnswer)
    house.pass_time(1_000)
    house.fail_over()
    house.pass_time(10 * 60_000)
    [listed] = house.ask(ListTransactions(), ListTransactionsAnswer).transactions
    assert (listed.state, listed.age_ms) == (TransactionState.PREPARED, 601_000)
    assert NoteKind.PREPARED_LONG in [each.kind for each in house.core.notes.take()]
    house.ask(AbortTransaction(transactional_id="t"), AbortAnswer)
    assert house.value("t").state is TransactionState.COMPLETE_ABORT


def test_trap_32_deciding_again_the_same_way_is_a_success_whatever_followed() -> None:
    house = House()
    by = begun(house)
    house.ask(prepare(by), PrepareAnswer)
    for _ in range(2):
        house.ask(decide(by, Decision.COMMIT), DecideAnswer)
    assert house.refusal(decide(by, Decision.ABORT)) is ErrorCode.INVALID_TRANSACTION_STATE
    after = house.ask(init(by), InitAnswer).identity
    for end in (abort, commit):
        house.ask(add(after), AddPartitionsAnswer)
        house.ask(decide(by, Decision.COMMIT), DecideAnswer)
        after = house.ask(end(after), EndAnswer).identity
        house.fail_over()
        house.ask(decide(by, Decision.COMMIT), DecideAnswer)
    assert len([each for each in house.leaders.written if each[2] is Decision.COMMIT]) == 2


@pytest.mark.parametrize(
    "request_of",
    [commit, abort, init, lambda _: init(), lambda by: add(by, A1), add],
    ids=["commit", "abort", "renew", "take over", "add", "add again"],
)
def test_trap_32_only_its_token_ends_a_prepared_transaction(
    request_of: Callable[[Identity], EndTransaction],
) -> None:
    house = House()
    by = begun(house)
    house.ask(prepare(by), PrepareAnswer)
    assert house.refusal(request_of(by)) is ErrorCode.TRANSACTION_PREPARED
    assert house.value("t").state is TransactionState.PREPARED


def test_trap_32_what_was_never_prepared_is_not_decided_by_a_token() -> None:
    house = House()
    by = begun(house)
    for decision in Decision:
        assert house.refusal(decide(by, decision)) is ErrorCode.INVALID_TRANSACTION_STATE
    assert house.value("t").state is TransactionState.ONGOING
    after = house.ask(commit(by), EndAnswer).identity
    for token in (by, after):
        refused = house.refusal(decide(token, Decision.COMMIT))
        assert refused is ErrorCode.INVALID_TRANSACTION_STATE


def test_trap_32_a_decision_by_token_gives_no_identity_to_a_second_process() -> None:
    house = House()
    by = begun(house)
    house.ask(prepare(by), PrepareAnswer)
    house.ask(decide(by, Decision.COMMIT), DecideAnswer)
    # The producer that prepared goes on; another process has to fence it.
    own = house.ask(init(by), InitAnswer).identity
    other = house.ask(init(), InitAnswer).identity
    assert own != other
    assert house.refusal(add(own)) is ErrorCode.FENCED_PRODUCER_EPOCH

"""Every plan of transactions has its shares of what is hard, and is a function of its seed."""

from collections import Counter
from typing import Final

import pytest

from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.workloads.transactions import (
    Ending,
    Held,
    PlannedSend,
    PlannedTransaction,
    TransactionPlan,
    Work,
    amount_of,
    draw_transaction_plan,
)
from tidelog.chaos.workloads.transactions.plan import PRODUCER_EPOCH_LAST

SEEDS: Final = range(60)
SHARE_MIN: Final = 0.2


@pytest.fixture(scope="module")
def plans() -> list[TransactionPlan]:
    return [draw_transaction_plan(Seeds(seed)) for seed in SEEDS]


def transactions_of(plan: TransactionPlan) -> list[PlannedTransaction]:
    return [each for process in plan.processes for each in process.transactions]


def sends_of(transaction: PlannedTransaction) -> list[PlannedSend]:
    return [each for each in transaction.steps if isinstance(each, PlannedSend)]


def test_a_fifth_of_the_transactions_of_each_plan_aborts(plans: list[TransactionPlan]) -> None:
    for plan in plans:
        planned = transactions_of(plan)
        aborted = [each for each in planned if each.ending is Ending.ABORT]
        assert len(aborted) >= SHARE_MIN * len(planned)


def test_a_fifth_of_the_transactions_of_each_plan_spans_leaders(
    plans: list[TransactionPlan],
) -> None:
    for plan in plans:
        planned = transactions_of(plan)
        spanning = [each for each in planned if plan.is_spanning(each)]
        assert SHARE_MIN * len(planned) <= len(spanning) < len(planned)


def test_small_plans_have_their_shares_as_well() -> None:
    plan = draw_transaction_plan(Seeds(1), processes=1, transactions=3, brokers=2)
    (process,) = plan.processes
    assert any(each.ending is Ending.ABORT for each in process.transactions)
    assert any(plan.is_spanning(each) for each in process.transactions)


def test_epochs_begin_near_their_end_in_some_plans(plans: list[TransactionPlan]) -> None:
    high = [
        plan
        for plan in plans
        if all(
            PRODUCER_EPOCH_LAST - 5 <= each.first_epoch <= PRODUCER_EPOCH_LAST
            for each in plan.processes
        )
    ]
    low = [plan for plan in plans if all(each.first_epoch == 0 for each in plan.processes)]
    assert len(high) + len(low) == len(plans)
    assert len(plans) // 10 < len(high) < len(plans) // 2


def test_the_legs_of_each_transfer_add_up_to_zero(plans: list[TransactionPlan]) -> None:
    for plan in plans:
        for process in plan.processes:
            for transaction in process.transactions:
                amounts = [amount_of(each.value) for each in sends_of(transaction)]
                if process.work is Work.MOVE:
                    moved = [each for each in amounts if each is not None]
                    assert len(moved) == len(amounts) >= 2
                    assert sum(moved) == 0
                else:
                    assert set(amounts) <= {None}


def test_a_value_names_one_record_of_a_plan(plans: list[TransactionPlan]) -> None:
    for plan in plans:
        counts = Counter(sent.value for each in transactions_of(plan) for sent in sends_of(each))
        assert max(counts.values()) == 1


def test_every_kind_of_work_end_and_held_message_is_planned(
    plans: list[TransactionPlan],
) -> None:
    for plan in plans:
        assert {each.work for each in plan.processes} == set(Work)
    assert {each.ending for plan in plans for each in transactions_of(plan)} == set(Ending)
    assert {each.held for plan in plans for each in transactions_of(plan)} == set(Held)


def test_a_plan_writes_only_to_partitions_that_it_names(plans: list[TransactionPlan]) -> None:
    for plan in plans:
        for process in plan.processes:
            assert set(process.reads) <= set(plan.leaders)
            for transaction in process.transactions:
                assert {each.partition for each in sends_of(transaction)} <= set(process.writes)


def test_the_same_seed_draws_the_same_plan() -> None:
    assert draw_transaction_plan(Seeds(7)) == draw_transaction_plan(Seeds(7))
    assert draw_transaction_plan(Seeds(7)) != draw_transaction_plan(Seeds(8))


def test_more_processes_leave_the_others_as_they_were() -> None:
    four = draw_transaction_plan(Seeds(7), processes=4)
    five = draw_transaction_plan(Seeds(7), processes=5)
    assert five.processes[:4] == four.processes

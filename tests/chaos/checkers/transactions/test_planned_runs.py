"""Plans carried out over a log: a right one is never accused, one with a famous bug always is."""

from typing import Final

import pytest

from tests.chaos.support.planned_model import PlannedModel, pipeline_of
from tidelog.chaos.checkers.transactions import (
    TransactionHistory,
    TransactionOutcome,
    check_bank,
    check_pipeline,
    check_transactions,
    drained_logs,
)
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.workloads.transactions import (
    TransactionPlan,
    Work,
    amount_of,
    draw_transaction_plan,
)

SEEDS: Final = range(120)
DAMAGED_MIN: Final = 20
BLAMED: Final = frozenset(
    {"aborted_read", "lost_write", "torn_transaction", "uncommitted_read", "precommitted_read"}
)


def anomalies_of(plan: TransactionPlan, history: TransactionHistory) -> set[str]:
    """The names under which anything is told."""
    logs = drained_logs(history)
    found = [*check_transactions(history), *check_bank(history, amount_of)]
    for process in plan.processes:
        if process.work is Work.FOLD:
            found += check_pipeline(logs, pipeline_of(process))
    return {anomaly.check for anomaly in found}


@pytest.mark.slow
def test_a_plan_on_a_log_that_is_right_is_never_accused() -> None:
    for seed in SEEDS:
        plan = draw_transaction_plan(Seeds(seed))
        model = PlannedModel(plan, seed)
        assert anomalies_of(plan, model.run()) == set(), f"seed {seed}"
        assert model.ends_that_came_late == 0, "an old epoch decides nothing"


@pytest.mark.slow
def test_an_end_that_decides_a_later_transaction_is_found_wherever_it_does_damage() -> None:
    damaged = 0
    for seed in SEEDS:
        plan = draw_transaction_plan(Seeds(seed))
        model = PlannedModel(plan, seed, is_fenced=False)
        history = model.run()
        if not _is_damaged(model, history):
            continue
        damaged += 1
        assert anomalies_of(plan, history) & BLAMED, f"seed {seed}"
    assert damaged >= DAMAGED_MIN


def _is_damaged(model: PlannedModel, history: TransactionHistory) -> bool:
    """Whether the log shows something else than the processes were told."""
    shown = {
        value
        for partition in model.partitions.values()
        for _, value in partition.shown(0, len(partition.entries))
    }
    return any(
        (not transaction.may_commit and sent.value in shown)
        or (transaction.outcome is TransactionOutcome.COMMITTED and sent.value not in shown)
        for transaction in history.transactions
        for sent in transaction.sends()
    )

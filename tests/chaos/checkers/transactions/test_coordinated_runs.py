"""The coordinator's real core under lost and late messages, failovers and timeouts, judged.

Leaders and clients are models; what the processes saw goes through every check. Bugs planted into
the core or into the leaders are found by the checks as they are, under the names that they expect.
"""

from collections.abc import Iterable
from typing import Final

import pytest

from tests.chaos.support.coordinated_log import ModelLeader
from tests.chaos.support.coordinated_model import CoordinatedModel
from tests.chaos.support.planned_model import pipeline_of
from tidelog.broker.transactions.core import ending, markers
from tidelog.broker.transactions.core.identities import Standing, standing
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.pending import PendingAppends
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.states import Decision, Succession
from tidelog.broker.transactions.state.transaction import Transaction
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.chaos.checkers.transactions import (
    TransactionHistory,
    check_bank,
    check_pipeline,
    check_transactions,
    drained_logs,
)
from tidelog.chaos.sim.base.seeds import Seeds
from tidelog.chaos.sim.planted import Plant, Substitution, planted
from tidelog.chaos.workloads.transactions import (
    TransactionPlan,
    Work,
    amount_of,
    draw_transaction_plan,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey

SEEDS: Final = range(100)
PLANTED_SEEDS: Final = range(60)
BROKEN: Final = frozenset(
    {"aborted_read", "torn_transaction", "lost_write", "unseen", "duplicate", "dirty_order"}
)


def anomalies_of(plan: TransactionPlan, history: TransactionHistory) -> set[str]:
    """The names under which anything is told."""
    logs = drained_logs(history)
    found = [*check_transactions(history), *check_bank(history, amount_of)]
    for process in plan.processes:
        if process.work is Work.FOLD:
            found += check_pipeline(logs, pipeline_of(process))
    return {anomaly.check for anomaly in found}


def decide_by_name_alone() -> Substitution:
    """An end decides whatever its transactional id has open, as before the second version."""

    def standing_by_name(value: TransactionValue, identity: Identity) -> Standing:
        is_open = not value.is_ending and bool(value.topics)
        return Standing.CURRENT if is_open else standing(value, identity)

    return Substitution(ending, "standing", standing_by_name)


def answer_before_the_append_is_committed() -> Substitution:
    """A failover takes back what was answered."""

    def last_of(self: PendingAppends, transactional_id: str | None) -> int:
        del self, transactional_id
        return 0

    return Substitution(PendingAppends, "last_of", last_of)


def append_what_a_marker_has_ended() -> Substitution:
    """A leader does not look at the epoch again once the coordinator has said yes."""

    def is_fenced(self: ModelLeader, identity: Identity) -> bool:
        del self, identity
        return False

    return Substitution(ModelLeader, "is_fenced", is_fenced)


def commit_at_the_timeout() -> Substitution:
    """A transaction that takes too long is committed as far as it is."""
    original = ending.decide

    def decide(
        world: TransactionWorld,
        draft: TransactionDraft,
        decision: Decision,
        succession: Succession,
    ) -> None:
        if succession is Succession.TIMED_OUT:
            decision = Decision.COMMIT
        original(world, draft, decision, succession)

    return Substitution(ending, "decide", decide)


def complete_at_the_first_marker() -> Substitution:
    """One marker that is there stands for all of them."""
    original = markers.take_answers

    def take_answers(
        world: TransactionWorld,
        transaction: Transaction,
        send_id: int,
        results: Iterable[tuple[PartitionKey, TidelogError | None]],
    ) -> bool:
        answered = list(results)
        original(world, transaction, send_id, answered)
        is_any_there = any(error is None for _, error in answered)
        if is_any_there and transaction.markers is not None:
            transaction.markers.waiting.clear()
            transaction.markers.sent.clear()
            for each, name in list(world.sends.items()):
                if name == transaction.transactional_id:
                    del world.sends[each]
        return is_any_there

    return Substitution(markers, "take_answers", take_answers)


PLANTS: Final = {
    plant.__name__: Plant(make=plant, expected=BROKEN)
    for plant in (
        decide_by_name_alone,
        answer_before_the_append_is_committed,
        append_what_a_marker_has_ended,
        commit_at_the_timeout,
        complete_at_the_first_marker,
    )
}


@pytest.mark.slow
def test_a_run_of_the_core_is_never_accused_and_leaves_nothing_open() -> None:
    failovers = timeouts = rotations = 0
    for seed in SEEDS:
        plan = draw_transaction_plan(Seeds(seed))
        model = CoordinatedModel(plan, seed)
        assert anomalies_of(plan, model.run()) == set(), f"seed {seed}"
        assert model.left_open == [], f"seed {seed}"
        assert model.surprises == 0, f"seed {seed}"
        assert not model.is_cut, f"seed {seed}"
        failovers += model.failovers
        timeouts += model.timeouts
        rotations += model.rotations
    assert failovers > len(SEEDS)
    assert timeouts > len(SEEDS)
    assert rotations > len(SEEDS) // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_bug_planted_into_the_core_is_found(name: str) -> None:
    plant = PLANTS[name]
    with planted(plant) as breakages:
        for seed in PLANTED_SEEDS:
            plan = draw_transaction_plan(Seeds(seed))
            found = anomalies_of(plan, CoordinatedModel(plan, seed).run())
            if found & plant.expected:
                break
        else:
            pytest.fail(f"{len(PLANTED_SEEDS)} seeds do not show it")
    assert breakages == [], "a substitute that breaks is no bug of a node"

"""Histories of a correct log are never accused; each planted fault is found under its name."""

from collections.abc import Callable

import pytest

from tests.chaos.support.transaction_model import TransactionModel
from tests.chaos.support.transaction_mutations import MUTATIONS
from tidelog.chaos.checkers.transactions import TransactionHistory, check_transactions
from tidelog.chaos.sim.base.seeds import SeededRandom

CORRECT_SEEDS = 1_000
PARTS = 4
MUTATED_SEEDS = range(40)
PLANTED_MIN = 4
"""A mutation that fits nowhere finds nothing out."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_correct_log_is_never_accused(part: int) -> None:
    operations = 0
    seeds = range(part, CORRECT_SEEDS, PARTS)
    for seed in seeds:
        history = TransactionModel(seed).run()
        operations += history.operations
        found = [str(anomaly) for anomaly in check_transactions(history)]
        assert found == [], f"seed {seed}"
    assert operations > 100 * len(seeds), "the histories are not empty"


@pytest.fixture(scope="module")
def histories() -> list[TransactionHistory]:
    return [TransactionModel(seed).run() for seed in MUTATED_SEEDS]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_a_planted_fault_is_found_wherever_it_fits(
    mutation: Callable[[TransactionHistory, SeededRandom], TransactionHistory | None],
    histories: list[TransactionHistory],
) -> None:
    planted = 0
    for seed, history in zip(MUTATED_SEEDS, histories, strict=True):
        broken = mutation(history, SeededRandom(seed, mutation.__name__))
        if broken is None:
            continue
        planted += 1
        found = {anomaly.check for anomaly in check_transactions(broken)}
        assert found & MUTATIONS[mutation], f"seed {seed}: {found}"
    assert planted >= PLANTED_MIN

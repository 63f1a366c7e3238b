"""The suite of transactions: a slice of its seeds is clean, and it finds the planted bugs."""

from collections.abc import Callable

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.sim.planted.of_transactional_clients import PLANTED
from tidelog.chaos.sim.runner import Totals
from tidelog.chaos.sim.transactions.cores import run_cores
from tidelog.chaos.sim.transactions.nodes import run_nodes
from tidelog.chaos.sim.transactions.suite import TRANSACTIONS
from tidelog.chaos.sim.verdicts.result import RunResult, Watch

PLANTED_MIN = 30
ABORTED_SHARE_MIN = 0.2


class TestTransactionsSuite(SuiteContract):
    """The contract of every suite."""

    suite = TRANSACTIONS
    planted = PLANTED

    @pytest.mark.slow
    def test_seeds_commit_and_abort_and_move_coordinators(self, totals: Totals) -> None:
        figures = [result.figures for result in totals.results]
        aborted = sum(each["aborted"] for each in figures)
        ended = aborted + sum(each["committed"] for each in figures)
        assert aborted >= ABORTED_SHARE_MIN * ended
        assert sum(each["moves"] for each in figures) > 2 * len(figures)
        assert sum(each["prepared"] for each in figures) > 0


@pytest.mark.slow
@pytest.mark.parametrize("run", [run_cores, run_nodes])
def test_one_seed_gives_one_history(run: Callable[[int, Watch | None], RunResult]) -> None:
    first = run(3, None)
    assert first.events > 0
    assert run(3, None) == first


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED) >= PLANTED_MIN

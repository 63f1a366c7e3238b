"""The suite of the quorum: a slice of its seeds is clean, and it finds the planted bugs."""

from collections.abc import Iterator

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.checkers.raft.invariants import GROUPS, list_invariants
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.__main__ import main
from tidelog.chaos.sim.planted.of_quorum import PLANTED
from tidelog.chaos.sim.quorum.datagrams import run_datagrams
from tidelog.chaos.sim.quorum_nodes.play import run_nodes
from tidelog.chaos.sim.quorum_nodes.suite import QUORUM

INVARIANTS_MIN = 16


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated nodes log what they suffer."""
    with runner.quiet():
        yield


class TestQuorumSuite(SuiteContract):
    """The contract of every suite."""

    suite = QUORUM
    planted = PLANTED


@pytest.mark.slow
@pytest.mark.parametrize("run", [run_datagrams, run_nodes], ids=["datagrams", "nodes"])
def test_one_seed_gives_one_history(run: object) -> None:
    assert callable(run)
    first = run(3, None)
    assert first.events > 0
    assert run(3, None) == first


@pytest.mark.slow
def test_both_modes_have_figures_of_the_same_names() -> None:
    datagrams, nodes = run_datagrams(0, None), run_nodes(0, None)
    assert sorted(datagrams.figures) == sorted(nodes.figures)


def test_every_invariant_has_a_name_of_its_own_and_says_what_it_means() -> None:
    invariants = [invariant for _, group in GROUPS for invariant in group]
    names = [getattr(invariant, "__name__", "") for invariant in invariants]
    assert len(set(names)) == len(names) >= INVARIANTS_MIN
    assert all(invariant.__doc__ for invariant in invariants)
    assert len(list_invariants()) == len(names)


def test_every_plant_expects_an_invariant_or_a_history_check() -> None:
    known = {getattr(invariant, "__name__", "") for _, group in GROUPS for invariant in group}
    known |= {"not_linearizable", "not_alive", "restless", "states_agree"}
    for name, plant in PLANTED.items():
        assert plant.expected <= known, f"{name} expects what nobody checks"


def test_the_command_lists_the_invariants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-invariants"]) == 0
    assert "one_vote_per_term" in capsys.readouterr().out

"""Planted bugs that are found late: one by turns of the commit, or all with --every-plant."""

import pytest

from tests.chaos.support.suite_contract import (
    RARE,
    SLOW,
    TURN_CPU_SECONDS,
    search,
    whose_turn_it_is,
)
from tests.support.telling import Tell
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.planted import load_planted
from tidelog.chaos.sim.suites import load_suite


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """By name only if all are asked for: workers that begin at different commits must agree."""
    if "late_found" in metafunc.fixturenames:
        is_every = metafunc.config.getoption("--every-plant", default=False)
        metafunc.parametrize(
            "late_found",
            (*SLOW, *RARE) if is_every else [None],
            ids=_name if is_every else ["by_turns"],
        )


def _name(plant: object) -> str:
    assert isinstance(plant, tuple), "suite and name"
    return "-".join(plant)


@pytest.mark.slow
def test_a_planted_bug_is_found_late_by_the_suite_as_it_is(
    late_found: tuple[str, str] | None, tell: Tell
) -> None:
    commit = runner.commit().removesuffix("+")
    suite, name = late_found or whose_turn_it_is(commit)
    cpu_seconds = None if late_found else TURN_CPU_SECONDS
    told = search(load_suite(suite), name, load_planted(suite)[name], cpu_seconds=cpu_seconds)
    turn = "" if late_found else f"by turns, 1 of {len(SLOW)} at commit {commit}; "
    tell(f"suite {suite}: {turn}{told}")


def test_every_late_one_has_a_turn() -> None:
    assert {whose_turn_it_is(str(number)) for number in range(200)} == set(SLOW)
    assert whose_turn_it_is("95d0ae4d2f8f") == whose_turn_it_is("95d0ae4d2f8f")


def test_a_turn_that_has_no_time_left_is_told_as_skipped() -> None:
    plant = load_planted("log")["retry_a_failed_flush"]
    with pytest.raises(pytest.skip.Exception, match="not found within 0 seeds"):
        search(load_suite("log"), "retry_a_failed_flush", plant, cpu_seconds=0.0)


@pytest.mark.parametrize(("suite", "name"), [*SLOW, *RARE])
def test_every_late_one_is_planted(suite: str, name: str) -> None:
    assert name in load_planted(suite)

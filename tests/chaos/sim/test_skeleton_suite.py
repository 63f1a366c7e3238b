"""The suite of a single node: a slice of its seeds is clean, and it finds the planted bugs."""

import io
from collections.abc import Iterator

import pytest

from tests.chaos.support.suite_contract import SuiteContract
from tidelog.chaos.sim import runner
from tidelog.chaos.sim.__main__ import main
from tidelog.chaos.sim.planted import planted
from tidelog.chaos.sim.planted.of_skeleton import PLANTED
from tidelog.chaos.sim.skeleton.suite import SKELETON
from tidelog.chaos.sim.suites import RunResult, Suite


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Simulated nodes log what they suffer."""
    with runner.quiet():
        yield


class TestSkeletonSuite(SuiteContract):
    """The contract of every suite."""

    suite = SKELETON
    planted = PLANTED


@pytest.mark.slow
def test_a_planted_bug_is_gone_when_its_run_is_over() -> None:
    before = SKELETON.run(0, None)
    with planted(PLANTED["acknowledge_before_flush"]) as breakages:
        assert SKELETON.run(0, None).violations
    assert breakages == []
    assert SKELETON.run(0, None) == before


@pytest.mark.slow
def test_one_seed_prints_every_event_and_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("trace hash ")
    assert any("process:start" in line for line in lines)


def result(seed: int, *violations: str) -> RunResult:
    return RunResult(
        seed=seed,
        trace_hash="0" * 32,
        events=3_000 + seed,
        steps=9_000,
        virtual_ms=1_000,
        violations=violations,
        missing=() if seed % 2 else ("events",),
        felt={"break": seed},
        figures={"acknowledged": 60},
        transitions=(("ready", "net:reply"),),
    )


def test_a_failure_names_seed_and_commit_and_how_to_replay_it() -> None:
    out = io.StringIO()
    suite = Suite(name="toy", run=lambda seed, watch: result(seed))
    runner.print_failure(suite, result(7, "duplicate in t-0: x"), "abc123", out)
    assert out.getvalue().splitlines() == [
        "FAILED (seed 7, commit abc123)",
        "  duplicate in t-0: x",
        "  replay: make sim SUITE=toy SEED=7",
    ]


def test_the_summary_counts_seeds_and_faults() -> None:
    suite = Suite(name="toy", run=lambda seed, watch: result(seed, *(["bad"] if seed == 3 else [])))
    totals = runner.run_seeds(suite, range(10))
    out = io.StringIO()
    runner.print_summary(suite, totals, "abc123", out)
    text = out.getvalue()
    assert "10 run, 5 counting, 1 with violations" in text
    assert "events     p10 3,001, p50 3,004, sum 30,045" in text
    assert "not counting because of events: 5" in text
    assert [line.split() for line in text.splitlines() if "break" in line] == [
        ["break", "10", "9", "45"]
    ]


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--suite", "nothing"], ["--seed", "x"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2

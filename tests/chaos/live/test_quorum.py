"""Faults of real voters, a bounded slice; `make chaos CASE=...` runs more."""

import itertools
from pathlib import Path

import msgspec
import pytest

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.linearizability import (
    Operation,
    Verdict,
    check_history,
    check_key,
)
from tidelog.chaos.live.quorum.cases import QUORUM_CASES
from tidelog.chaos.live.quorum.load import OwnWrite
from tidelog.chaos.live.quorum.rounds import first_successes, longest_gap_ms
from tidelog.chaos.live.quorum.verdict import (
    RunVerdict,
    compare,
    read_history,
    report,
    with_known_outcomes,
    with_stale_read,
    write_history,
)

_NUMBERS = itertools.count(1)


def operation(name: str, value: str, began_ns: int, ended_ns: int) -> Operation:
    """Of one register."""
    is_read = name == "read"
    return Operation(
        client=f"client-{next(_NUMBERS)}",
        key="register",
        name=name,
        argument=None if is_read else value,
        began_ns=began_ns,
        ended_ns=ended_ns,
        outcome=Outcome.ACKNOWLEDGED,
        result=value if is_read else None,
    )


def own(number: int, outcome: Outcome, *, writer: int = 0, began_ns: int = 0) -> OwnWrite:
    """A write of a name of its own."""
    return OwnWrite(
        writer=writer,
        name=f"own-{writer}-{number}",
        number=number,
        began_ns=began_ns,
        ended_ns=began_ns + 10,
        outcome=outcome,
    )


def verdict(*anomalies: str, is_stale_read_found: bool = True) -> RunVerdict:
    """Of a run."""
    return RunVerdict(
        acknowledged=3,
        indeterminate=1,
        refused=0,
        nodes_read=3,
        operations=9,
        reads=5,
        configurations=12,
        is_stale_read_found=is_stale_read_found,
        anomalies=anomalies,
    )


HISTORY = [
    operation("write", "1", 0, 10),
    operation("write", "2", 20, 30),
    operation("read", "2", 40, 50),
]


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize(("name", "rounds"), [("leader-kill", 1), ("wipe", 1)])
def test_real_voters_lose_nothing_acknowledged_and_stay_linearizable(
    name: str, rounds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert QUORUM_CASES[name].run(tmp_path, rounds=rounds, seed=7) == 0
    printed = capsys.readouterr().out
    assert "read back from 3 nodes" in printed
    assert "nothing acknowledged is lost" in printed


def test_a_stale_read_put_into_a_sound_history_is_found() -> None:
    assert check_history(HISTORY)[0].verdict is Verdict.LINEARIZABLE
    doctored = with_stale_read(HISTORY)
    assert doctored is not None
    assert doctored[-1].result == "1"
    assert check_key("register", doctored).verdict is Verdict.VIOLATED


def test_no_stale_read_is_put_in_where_the_order_of_the_writes_is_open() -> None:
    at_once = [operation("write", "1", 0, 30), operation("write", "2", 5, 25), HISTORY[2]]
    assert with_stale_read(at_once) is None


def unknown(value: str, began_ns: int) -> Operation:
    """A write of which nobody knows what became."""
    written = operation("write", value, began_ns, began_ns)
    return msgspec.structs.replace(written, outcome=Outcome.INDETERMINATE)


def test_an_unknown_write_that_was_read_is_known_from_then_on() -> None:
    history = [*HISTORY, unknown("3", 55), operation("read", "3", 60, 70)]
    known = with_known_outcomes(history)
    assert (known[3].outcome, known[3].ended_ns) == (Outcome.ACKNOWLEDGED, 70)
    assert check_history(known)[0].verdict is Verdict.LINEARIZABLE


def test_an_unknown_write_that_was_read_and_then_not_is_a_violation() -> None:
    seen = [unknown("3", 55), operation("read", "3", 60, 70), operation("read", "2", 80, 90)]
    assert check_history([*HISTORY, *seen])[0].verdict is Verdict.VIOLATED
    assert check_history(with_known_outcomes([*HISTORY, *seen]))[0].verdict is Verdict.VIOLATED


def test_an_unknown_write_that_nobody_read_is_left_out() -> None:
    assert with_known_outcomes([unknown("3", 5), *HISTORY]) == HISTORY


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write_history(tmp_path / "history", HISTORY)
    assert read_history(tmp_path / "history") == HISTORY


def test_an_acknowledged_write_that_a_node_lacks_is_named() -> None:
    writes = [own(1, Outcome.ACKNOWLEDGED), own(2, Outcome.ACKNOWLEDGED)]
    found = compare(writes, {"own-0-1": 1}, node="a")
    assert found == ["a: 1 acknowledged and not there: own-0-2"]


def test_a_refused_write_that_is_there_is_named() -> None:
    found = compare([own(1, Outcome.FAILED)], {"own-0-1": 1}, node="a")
    assert found == ["a: 1 refused and there: own-0-1"]


def test_a_write_that_nobody_sent_is_named() -> None:
    assert compare([], {"own-0-1": 1}, node="a") == ["a: 1 there and never written: own-0-1"]


def test_a_write_of_unknown_outcome_may_be_there_or_not() -> None:
    writes = [own(1, Outcome.INDETERMINATE), own(2, Outcome.INDETERMINATE)]
    assert compare(writes, {"own-0-1": 1}, node="a") == []


def test_a_write_that_was_under_way_at_the_fault_is_no_success_after_it() -> None:
    writes = [
        own(1, Outcome.ACKNOWLEDGED, began_ns=95),
        own(2, Outcome.FAILED, began_ns=110),
        own(3, Outcome.ACKNOWLEDGED, began_ns=130),
        own(4, Outcome.ACKNOWLEDGED, began_ns=150),
    ]
    assert first_successes(writes, 100) == {0: 140}


def test_the_longest_gap_counts_the_time_before_the_first_and_after_the_last_write() -> None:
    writes = [own(1, Outcome.ACKNOWLEDGED, began_ns=2_000_000 - 10)]
    assert longest_gap_ms(writes, 0, 7_000_000) == 5.0


def test_an_anomaly_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(verdict("a: 1 acknowledged and not there: own-0-2")) == 1
    assert "ANOMALY a: 1 acknowledged and not there" in capsys.readouterr().out


def test_a_checker_that_misses_the_stale_read_makes_the_run_invalid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(verdict(is_stale_read_found=False)) == 3
    assert "INVALID" in capsys.readouterr().out

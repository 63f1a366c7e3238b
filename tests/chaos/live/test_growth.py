"""A cluster that changes under load: the parts of its live cases, and a bounded slice of each."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog.chaos.checkers import Anomaly
from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.live.cluster.journal import Entry, Journal
from tidelog.chaos.live.cluster.verdict import LiveVerdict, Read
from tidelog.chaos.live.growth import wrong_clock as cluster_wrong_clock
from tidelog.chaos.live.growth.cases import (
    GROWTH_CASES,
    WRONG_CLOCK,
    entries_of,
    exit_code,
    judge_entries,
    of_the_new_topic,
    run_growth_case,
    stalls_ms,
)
from tidelog.chaos.live.growth.growth import Phase, Recreated

MS = 1_000_000
RECREATED = Recreated(deleted_ns=100 * MS, created_ns=200 * MS)


def entry(
    number: int, began_ms: int, ended_ms: int, outcome: Outcome = Outcome.ACKNOWLEDGED
) -> Entry:
    """Of partition 0, at the offset of its number if it was acknowledged."""
    return Entry(
        partition=0,
        number=number,
        began_ns=began_ms * MS,
        ended_ns=ended_ms * MS,
        offset=number if outcome is Outcome.ACKNOWLEDGED else -1,
        outcome=outcome,
    )


def verdict(*anomalies: Anomaly) -> LiveVerdict:
    """Of a run whose checkers see."""
    return LiveVerdict(
        acknowledged=4,
        indeterminate=0,
        refused=0,
        records_read=4,
        partitions=1,
        anomalies=anomalies,
        is_planted_loss_found=True,
        is_planted_double_found=True,
    )


# -- a topic made anew ---------------------------------------------------------------------------


def test_what_the_old_topic_acknowledged_has_no_place_in_the_new_one() -> None:
    assert of_the_new_topic(entry(1, 80, 99), RECREATED) is None
    assert of_the_new_topic(entry(1, 80, 99, Outcome.FAILED), RECREATED) is None


def test_what_the_new_topic_acknowledged_is_held_to_it() -> None:
    sent = entry(1, 200, 250)
    assert of_the_new_topic(sent, RECREATED) == sent


@pytest.mark.parametrize(("began_ms", "ended_ms"), [(90, 150), (150, 160), (90, 300)])
def test_what_was_acknowledged_between_the_two_may_be_in_either(
    began_ms: int, ended_ms: int
) -> None:
    kept = of_the_new_topic(entry(1, began_ms, ended_ms), RECREATED)
    assert kept is not None
    assert (kept.outcome, kept.offset) == (Outcome.INDETERMINATE, -1)
    failed = entry(1, began_ms, ended_ms, Outcome.FAILED)
    assert of_the_new_topic(failed, RECREATED) == failed, "refused means not there"


def checks(entries: Sequence[Entry], values: Sequence[int]) -> set[str]:
    """Names of what is wrong with such a reading of partition 0."""
    kept = [of_the_new_topic(each, RECREATED) for each in entries]
    by_partition = [[("w0", each) for each in kept if each is not None]]
    read: Read = {0: [(offset, f"w0:{number}") for offset, number in enumerate(values)]}
    return {each.check for each in judge_entries(by_partition, read, topic="t").anomalies}


def test_a_record_of_the_old_topic_in_the_new_one_is_an_anomaly() -> None:
    sent = [entry(0, 90, 95), entry(1, 150, 160), entry(0, 210, 220)]
    sent[2] = Entry(
        partition=0,
        number=2,
        began_ns=210 * MS,
        ended_ns=220 * MS,
        offset=1,
        outcome=Outcome.ACKNOWLEDGED,
    )
    assert checks(sent, [1, 2]) == set()
    assert "from_nowhere" in checks(sent, [0, 2])
    assert {"lost_write", "unseen"} & checks(sent, [1])


def test_journals_are_put_together_by_partition(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w0.journal", partition_count=2)
    for number in range(4):
        journal.begin(number % 2, number)
        journal.end(number % 2, number, Outcome.ACKNOWLEDGED, number // 2)
    journal.close()
    found = entries_of({"w0": tmp_path / "w0.journal"}, 2, None)
    assert [[each.number for _, each in part] for part in found] == [[0, 2], [1, 3]]
    late = Recreated(deleted_ns=1 << 62, created_ns=1 << 62)
    assert entries_of({"w0": tmp_path / "w0.journal"}, 2, late) == [[], []]


# -- figures and exit codes ----------------------------------------------------------------------


def test_a_stall_is_told_of_partitions_that_were_there_when_the_phase_began() -> None:
    phase = Phase(name="x", began_ns=100 * MS, ended_ns=400 * MS, acknowledged=9)
    old = [90 * MS, 150 * MS, 380 * MS, 910 * MS]
    new = [300 * MS, 310 * MS]
    assert stalls_ms([old, new, []], phase) == [230.0]
    later = Phase(name="y", began_ns=400 * MS, ended_ns=950 * MS, acknowledged=9)
    assert stalls_ms([old], later) == [530.0], "where it ends"


def test_a_sound_run_ends_with_nothing_and_a_problem_an_anomaly_or_a_rest_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(verdict(), [], is_valid=True) == 0
    assert "lost 0, reordered 0, duplicated 0, of another topic 0" in capsys.readouterr().out
    assert exit_code(verdict(), ["leaders are not even"], is_valid=True) == 1
    assert "PROBLEM: leaders are not even" in capsys.readouterr().out
    twice = Anomaly("duplicate", "t-0", "w0:1 is there twice")
    assert exit_code(verdict(twice), [], is_valid=True) == 1
    assert "duplicated 1" in capsys.readouterr().out
    assert exit_code(verdict(), [], is_valid=False) == 3


# -- real nodes ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("name", GROWTH_CASES)
def test_a_cluster_that_changes_under_load_loses_doubles_and_reorders_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_growth_case(name, tmp_path, seconds=1.0, rate=200)
    printed = capsys.readouterr().out
    assert code == 0, printed
    if printed.startswith("SKIPPED"):
        pytest.skip(printed.strip())
    assert "every acknowledged record is there, once, in order" in printed


def test_a_case_with_another_clock_is_skipped_with_one_line_where_there_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_wrong_clock, "PLACES", (str(tmp_path / "*.so"),))
    assert run_growth_case(WRONG_CLOCK, tmp_path / "run", seconds=1.0, rate=1.0) == 0
    assert capsys.readouterr().out.startswith("SKIPPED: libfaketime")
    library = tmp_path / "libfaketime.so"
    library.touch()
    assert cluster_wrong_clock.find_library() == library
    assert cluster_wrong_clock.faked_clock(library, "+1d")["LD_PRELOAD"] == str(library)

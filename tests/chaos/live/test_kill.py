"""kill -9 of a real node under load, a bounded slice; `make chaos` runs more."""

from pathlib import Path

import pytest

from tidelog.chaos.checkers import Anomaly
from tidelog.chaos.live.single.kill_while_producing import Round, Verdict, report, run


def verdict(*anomalies: Anomaly, under_way: int = 1) -> Verdict:
    """A run of one round."""
    return Verdict(
        rounds=(Round(acknowledged=5, under_way=under_way, indeterminate=0, down_ms=900),),
        acknowledged=5,
        indeterminate=0,
        failed=0,
        records_read=5,
        anomalies=anomalies,
    )


@pytest.mark.slow
@pytest.mark.live
def test_every_acknowledged_record_survives_kill_9_once_and_in_order(tmp_path: Path) -> None:
    found = run(tmp_path, rounds=2, seed=7, acknowledged_min=1_000)
    assert found.anomalies == ()
    assert found.acknowledged >= 3_000
    assert found.records_read >= found.acknowledged
    assert all(each.acknowledged >= 1_000 for each in found.rounds)
    assert found.is_valid


def test_a_run_without_anomaly_says_what_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(verdict()) == 0
    assert "every acknowledged record is there" in capsys.readouterr().out


def test_an_anomaly_is_printed_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(verdict(Anomaly("unseen", "chaos-0", "w0:1, acknowledged at 1"))) == 1
    assert "ANOMALY unseen in chaos-0: w0:1, acknowledged at 1" in capsys.readouterr().out


def test_a_kill_that_nobody_felt_makes_the_run_invalid(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(verdict(under_way=0)) == 3
    assert "INVALID" in capsys.readouterr().out

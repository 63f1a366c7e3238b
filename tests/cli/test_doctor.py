"""What the doctor finds, and when it warns."""

import json
import socket
from itertools import count
from pathlib import Path

import pytest

from tidelog.cli import doctor
from tidelog.cli.main import main


def test_every_check_has_a_line_and_a_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--data-dir", str(tmp_path / "data"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert [finding["check"] for finding in findings] == [
        "clock",
        "open files",
        "disk",
        "flush",
        "port 9192",
        "port 9193",
        "java",
        "record decoder",
        "checksum",
    ]
    assert {finding["state"] for finding in findings} <= {"ok", "warning"}
    assert list(tmp_path.iterdir()) == []
    assert main(["doctor", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Check ")


def test_a_slow_disk_is_a_warning(tmp_path: Path) -> None:
    ticks = count()
    found = doctor.flush(tmp_path, now=lambda: float(next(ticks)))
    assert found.state == "warning"
    assert found.found.startswith("1000.00 ms in the middle")


def test_a_directory_that_takes_no_file_is_wrong(tmp_path: Path) -> None:
    assert doctor.flush(tmp_path / "none").state == "wrong"


def test_a_taken_port_is_a_warning() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert doctor.port(number).state == "warning"
    assert doctor.port(number).state == "ok"

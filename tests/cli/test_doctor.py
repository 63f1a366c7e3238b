"""What the doctor finds, and when it warns."""

import json
import os
import socket
from itertools import count
from pathlib import Path

import pytest

from tidelog.cli.main import main
from tidelog.cli.node import doctor
from tidelog.ports.real.disk.open_files import UNLIMITED, Limit


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
        "compression",
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


@pytest.mark.parametrize(
    ("hard", "state", "told"),
    [
        (65_536, "ok", "256, which a node raises to 65536 by itself"),
        (UNLIMITED, "ok", "256, which a node raises to no limit by itself"),
        (1_024, "warning", "raise the hard limit"),
        (256, "warning", "256: a node wants 4096"),
    ],
)
def test_a_hard_limit_of_open_files_that_is_too_low_is_a_warning_and_a_soft_one_is_not(
    hard: int, state: str, told: str
) -> None:
    class Told(Limit):
        def read(self) -> tuple[int, int]:
            return 256, hard

    found = doctor.open_files(Told())
    assert found.state == state
    assert told in found.found


def test_a_taken_port_is_a_warning() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert doctor.port(number).state == "warning"
    assert doctor.port(number).state == "ok"


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ("no idea", None),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Java is a script")
def test_the_version_of_java_is_read(tmp_path: Path, told: str, version: int | None) -> None:
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    assert doctor.java_version(str(program)) == version
    assert doctor.java_version(str(tmp_path / "nowhere")) is None


def test_a_clock_that_nothing_sets_is_a_warning_and_never_wrong() -> None:
    state = {True: "ok", None: "ok", False: "warning"}[doctor.synchronised()]
    assert doctor.clock().state == state


def test_every_codec_works_here() -> None:
    found = doctor.compression()
    assert found.state == "ok"
    assert all(name in found.found for name in ("gzip", "snappy", "lz4", "zstd", "cramjam"))

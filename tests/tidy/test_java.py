"""Finding Java for the Spark tests: the machine's first, a wheel's behind a script otherwise."""

import subprocess
from pathlib import Path

import pytest

from tests.support import java
from tests.support.waiting import HANG_SECONDS


def test_the_script_drops_only_the_module_that_the_wheel_lacks(tmp_path: Path) -> None:
    target = tmp_path / "java"
    target.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    target.chmod(0o755)
    home = java.write_shim(tmp_path / "home", target)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c", "Main", ""]
    command = [str(home / "bin/java"), *arguments]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    ).stdout
    assert shown.splitlines() == ["-Xmx1g", "-cp", "a b:c", "Main", ""]


def test_the_java_that_the_environment_names_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java.write_shim(tmp_path / "named", Path("java"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java_home(tmp_path / "unused") == home


def test_without_java_on_the_machine_none_is_found_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java.system_java_home() is None

"""What `make` says on a machine that lacks something: one line what, one line what to do."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import HANG_SECONDS
from tools.repository import TOP

PROGRAMS = ("bash", "cat", "dirname", "git", "mkdir", "rm", "sed")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of what the set-up reads, beside a folder with only a few programs."""
    shutil.copytree(TOP / "requirements", tmp_path / "requirements")
    (tmp_path / "tools").mkdir()
    shutil.copy(TOP / "tools/setup.sh", tmp_path / "tools/setup.sh")
    shutil.copy(TOP / "pyproject.toml", tmp_path / "pyproject.toml")
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, f"the test needs {name}"
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _environment(machine: Path, text: str) -> None:
    (machine / ".venv/bin").mkdir(parents=True)
    _script(machine / ".venv/bin/python", text)
    _script(machine / ".venv/bin/pip", "exit 0")


def _set_up(machine: Path, profile: str = "run") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(machine / "tools/setup.sh"), profile],
        env={"PATH": str(machine / "bin")},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )


def test_a_machine_without_a_new_enough_python_is_told_so(machine: Path) -> None:
    _script(machine / "bin/python3", "exit 1")
    done = _set_up(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "tidelog: Python 3.11 or newer was not found",
        "hint: install it, or name it: TIDELOG_PYTHON=/path/to/python3",
    ]


def test_a_python_without_its_venv_module_is_told_so(machine: Path) -> None:
    _script(machine / "bin/python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    done = _set_up(machine)
    assert done.returncode == 1
    assert done.stderr.startswith("tidelog: python3 has no venv module\nhint: ")


def test_a_machine_without_git_is_told_so(machine: Path) -> None:
    (machine / "bin/git").unlink()
    done = _set_up(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["tidelog: git was not found", "hint: install git"]


def test_packages_that_cannot_be_fetched_end_in_one_hint(machine: Path) -> None:
    _environment(machine, "echo no route to host >&2; exit 1")
    done = _set_up(machine)
    assert done.returncode == 1
    assert "tidelog: pip could not install requirements/run.lock" in done.stderr
    assert "hint: pip's message is above" in done.stderr
    assert not (machine / ".venv/.installed-run").exists()


def test_an_environment_that_is_current_is_left_alone(machine: Path) -> None:
    _environment(machine, "exit 0")
    assert _set_up(machine, "dev").returncode == 0
    _script(machine / ".venv/bin/python", "exit 1")
    assert _set_up(machine, "dev").stderr == ""
    assert _set_up(machine, "run").stderr == "", "what dev installs contains what run installs"
    with (machine / "requirements/dev.lock").open("a") as lock:
        lock.write("# changed\n")
    assert _set_up(machine, "dev").returncode == 1


def test_a_profile_that_does_not_exist_is_refused(machine: Path) -> None:
    done = _set_up(machine, "everything")
    assert done.returncode == 1
    assert done.stderr.startswith("tidelog: there is no requirements/everything.lock\nhint: ")

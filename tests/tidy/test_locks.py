"""Locks: what is resolved once is installed everywhere, and a stale lock is seen at once."""

import shutil
from pathlib import Path

import pytest

from tools import lock
from tools.repository import TOP

BASE = next(each for each in lock.LOCKS if each.name == "base")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of everything that locks are checked against."""
    shutil.copytree(TOP / "requirements", tmp_path / "requirements")
    shutil.copy(TOP / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path.name} does not hold {old!r}"
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("each", lock.LOCKS, ids=lambda each: str(each.name))
def test_a_lock_fits_what_it_was_resolved_from(each: lock.Lock) -> None:
    assert lock.faults(each, TOP) == []


def test_a_changed_range_makes_the_lock_stale_and_names_the_pin(tree: Path) -> None:
    _replace(tree / "pyproject.toml", '"msgspec>=0.19,<1"', '"msgspec>=0.99,<1"')
    found = lock.faults(BASE, tree)
    assert found[0] == "requirements/base.lock: its inputs changed since; run `make lock`"
    assert found[1].startswith("requirements/base.lock: msgspec 0.")
    assert found[1].endswith("does not satisfy <1,>=0.99")


def test_a_missing_lock_and_a_missing_pin_are_told_apart(tree: Path) -> None:
    path = tree / BASE.path
    entry = next(each for each in lock.entries(path.read_text()) if each.startswith("msgspec"))
    _replace(path, entry, "")
    assert lock.faults(BASE, tree) == ["requirements/base.lock: msgspec is not pinned"]
    path.unlink()
    assert lock.faults(BASE, tree) == ["requirements/base.lock: missing; run `make lock`"]


def test_the_locks_agree_on_the_version_of_every_package_they_share() -> None:
    pinned = {each.name: lock.pins((TOP / each.path).read_text()) for each in lock.LOCKS}
    for name in ("base", "run"):
        assert pinned[name].items() <= pinned["dev"].items(), f"{name} and dev differ"

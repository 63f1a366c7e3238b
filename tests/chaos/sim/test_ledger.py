"""The ledger adds up clean seeds of one state of the code, and forgets no failure."""

from pathlib import Path

import pytest

from tidelog.chaos.sim.ledger import Ledger, hash_sources
from tidelog.chaos.sim.sources import ROOT, sources_behind
from tidelog.chaos.sim.suites import load_suite
from tidelog.chaos.sim.verdicts.result import RunResult


def result(seed: int, *violations: str, missing: tuple[str, ...] = ()) -> RunResult:
    return RunResult(
        seed=seed,
        trace_hash="",
        events=10,
        steps=20,
        virtual_ms=30,
        violations=violations,
        missing=missing,
        felt={},
        figures={},
        transitions=(),
    )


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "toy.json"
    first = Ledger(path, "k1", "c1")
    first.add(result(0), 0.5)
    first.add(result(1, missing=("events",)), 0.5)
    first.add(result(2, "lost: x"), 0.5)
    first.save()
    again = Ledger(path, "k1", "c2")
    page = again.page
    assert (page.next_seed, page.counting, page.seeds_with_violations) == (3, 1, [2])
    assert (page.events, page.cpu_seconds, page.commit) == (30, 1.5, "c2")


def test_another_state_of_the_code_begins_anew_and_keeps_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    first = Ledger(path, "k1", "c1")
    first.add(result(0), 0.1)
    first.save()
    other = Ledger(path, "k2", "c2")
    assert other.page.next_seed == 0
    other.save()
    assert Ledger(path, "k1", "c1").page.next_seed == 1


def test_a_seed_is_counted_once_and_none_is_left_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "toy.json", "k1", "c1")
    with pytest.raises(AssertionError, match="seed 0 comes next, not 1"):
        ledger.add(result(1), 0.1)


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    """A repository in which a suite imports one module directly, and another through it."""
    for name, text in (
        ("one/tidelog/suite.py", "from tidelog.core import decide\n"),
        ("two/tidelog/core/__init__.py", ""),
        ("two/tidelog/core/decide.py", "def late() -> None:\n    import tidelog.limits\n"),
        ("one/tidelog/limits.py", "MOST = 1\n"),
        ("one/tidelog/stranger.py", "import os\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_key_follows_the_files_that_a_suite_imports_and_no_others(rooms: Path) -> None:
    def key() -> str:
        return hash_sources(sources_behind("tidelog.suite", rooms), rooms)

    before = key()
    for name in ("one/tidelog/suite.py", "two/tidelog/core/decide.py", "one/tidelog/limits.py"):
        path = rooms / name
        path.write_text(path.read_text() + "# changed\n")
        assert key() != before, name
        before = key()
    (rooms / "one/tidelog/stranger.py").write_text("import sys\n")
    assert key() == before


def test_every_suite_stands_on_its_own_file_and_on_what_it_simulates() -> None:
    for name, room in (
        ("log", "broker/tidelog/broker/log"),
        ("quorum", "metadata_quorum/tidelog/metadata_quorum/raft"),
        ("cluster", "broker/tidelog/broker/replication"),
        ("groups", "broker/tidelog/broker/groups"),
        ("clients", "client_sdk/tidelog/client/engine"),
        ("skeleton", "broker/tidelog/server"),
    ):
        module = load_suite(name).run.__module__
        found = [path.relative_to(ROOT).as_posix() for path in sources_behind(module)]
        assert f"{module.replace('.', '/')}.py" in " ".join(found)
        assert any(each.startswith(room) for each in found), name

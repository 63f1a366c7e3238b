"""The ledger adds up clean seeds of one state of the code, and forgets no failure."""

from pathlib import Path

import pytest

from tidelog.chaos.sim.ledger import ROOT, Ledger, hash_rooms
from tidelog.chaos.sim.suites.quorum import QUORUM
from tidelog.chaos.sim.suites.result import RunResult


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


def test_the_key_follows_the_code_and_nothing_else(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "a.py").write_text("one = 1\n")
    before = hash_rooms(("room",), tmp_path)
    (room / "notes.txt").write_text("something")
    assert hash_rooms(("room",), tmp_path) == before
    (room / "a.py").write_text("one = 2\n")
    assert hash_rooms(("room",), tmp_path) != before


def test_every_room_of_the_quorum_suite_is_there() -> None:
    assert [room for room in QUORUM.rooms if not (ROOT / room).exists()] == []

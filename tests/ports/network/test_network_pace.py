"""When a listener's sockets are looked at: what grows does not wait for a loop that is late."""

import mmap
import sys
from pathlib import Path

import pytest

from tidelog.ports.real.network.pace import (
    GIVE_BACK_MS,
    GROWTH_BYTES,
    GROWTH_PART,
    HIDDEN_MS,
    LOOK_MS,
    LOOK_PART,
    NS_PER_MS,
    LookPace,
)
from tidelog.ports.real.network.process_memory import ProcessMemory

MIB = 1024 * 1024
START_BYTES = 100 * MIB


def looked(begun_ms: int = 0, held_bytes: int = START_BYTES, worked_ms: int = 0) -> LookPace:
    """After one look."""
    pace = LookPace(START_BYTES)
    pace.looked(begun_ms * NS_PER_MS, held_bytes, worked_ms * NS_PER_MS)
    return pace


def test_memory_that_has_grown_since_the_last_look_is_a_reason_to_look_at_once() -> None:
    pace = looked()
    assert not pace.must_look(1, START_BYTES + GROWTH_BYTES - 1)
    assert pace.must_look(1, START_BYTES + GROWTH_BYTES)
    pace.looked(1, START_BYTES + GROWTH_BYTES, 0)
    assert not pace.must_look(2, START_BYTES + GROWTH_BYTES)


def test_growth_counts_from_where_memory_was_lowest() -> None:
    pace = looked()
    assert not pace.must_look(1, START_BYTES // 2)
    assert pace.must_look(2, START_BYTES // 2 + GROWTH_BYTES)


def test_after_a_hang_up_it_looks_though_memory_does_not_grow() -> None:
    pace = looked()
    pace.hung_up(0)
    assert pace.must_look((HIDDEN_MS - 1) * NS_PER_MS, START_BYTES // 2)
    pace.looked((HIDDEN_MS - 1) * NS_PER_MS, START_BYTES // 2, 0)
    assert not pace.must_look(HIDDEN_MS * NS_PER_MS, START_BYTES // 2)


def test_a_loop_that_asks_for_no_look_is_not_waited_for() -> None:
    pace = looked()
    assert not pace.must_look(2 * LOOK_MS * NS_PER_MS - 1, START_BYTES)
    assert pace.must_look(2 * LOOK_MS * NS_PER_MS, START_BYTES)


def test_looks_that_cost_more_are_further_apart_and_less_so_while_memory_grows() -> None:
    pace = looked(begun_ms=10, worked_ms=3)
    assert not pace.may_look((10 + 3 * LOOK_PART) * NS_PER_MS - 1)
    assert pace.may_look((10 + 3 * LOOK_PART) * NS_PER_MS)
    grown = START_BYTES + GROWTH_BYTES
    assert not pace.must_look((10 + 3 * GROWTH_PART) * NS_PER_MS - 1, grown)
    assert pace.must_look((10 + 3 * GROWTH_PART) * NS_PER_MS, grown)


def test_freed_memory_is_given_back_again_after_the_last_hang_up_until_grpc_has_let_go() -> None:
    pace = looked()
    pace.hung_up(0)
    told_ms = [at_ms for at_ms in range(100_000) if pace.take_give_back(at_ms * NS_PER_MS)]
    assert told_ms == [50, 1_050, 6_050, 31_050]
    pace.hung_up(0)
    assert pace.take_give_back(50 * NS_PER_MS)
    # One that comes while the next time is far is not kept waiting for it.
    pace.hung_up(100 * NS_PER_MS)
    assert not pace.take_give_back(149 * NS_PER_MS)
    assert pace.take_give_back(150 * NS_PER_MS)


def test_freed_memory_is_given_back_once_soon_after_the_first_of_several_hang_ups() -> None:
    pace = looked()
    assert not pace.take_give_back(NS_PER_MS)
    pace.hung_up(NS_PER_MS)
    pace.hung_up(GIVE_BACK_MS * NS_PER_MS)
    assert not pace.take_give_back(GIVE_BACK_MS * NS_PER_MS)
    assert pace.take_give_back((1 + GIVE_BACK_MS) * NS_PER_MS)
    assert not pace.take_give_back((1 + GIVE_BACK_MS) * NS_PER_MS)


@pytest.mark.skipif(sys.platform != "linux", reason="others tell no such figure")
def test_the_memory_of_a_process_grows_with_what_it_holds() -> None:
    memory = ProcessMemory()
    before_bytes = memory.now_bytes()
    # Straight from the system: an allocator may have as much lying about.
    with mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(bytes(len(held)))
        assert memory.now_bytes() - before_bytes >= len(held) - MIB
    memory.give_back()
    memory.close()
    memory.close()
    assert memory.now_bytes() == 0


def test_where_the_system_tells_nothing_memory_never_grows(tmp_path: Path) -> None:
    assert ProcessMemory(str(tmp_path / "absent")).now_bytes() == 0
    (tmp_path / "other").write_text("of another form\n")
    memory = ProcessMemory(str(tmp_path / "other"))
    assert memory.now_bytes() == 0
    memory.close()

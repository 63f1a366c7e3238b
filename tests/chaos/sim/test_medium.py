"""What a simulated disk keeps: everything that a flush covered, after every crash."""

import pytest

from tidelog.chaos.sim import FaultKind, Faults, SeededRandom, Trace
from tidelog.chaos.sim.ports.medium import Directory, Inode, Medium, NameChange

CRASH_KINDS = (
    FaultKind.LOST_WRITE,
    FaultKind.TORN_WRITE,
    FaultKind.HOLE,
    FaultKind.LOST_NAME,
)


def faults(seed: int) -> Faults:
    return Faults(SeededRandom(seed, "faults"), Trace(), enabled=CRASH_KINDS)


def crash(medium: Medium, seed: int) -> None:
    medium.crash(SeededRandom(seed, "crash"), faults(seed))


def named(medium: Medium, name: str, place: Inode | Directory) -> None:
    medium.change_names(NameChange(added=(medium.root, name, place)))


def flush_names(medium: Medium) -> None:
    medium.cover_names(medium.root, medium.root.made)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_crash_does_flushed_bytes_and_names_stay(seed: int) -> None:
    random = SeededRandom(seed, "test")
    medium, inode = Medium("m"), Inode()
    named(medium, "log", inode)
    flush_names(medium)
    flushed = b""
    for _ in range(30):
        inode.write(random.noise(1 + random.below(50)))
        if random.chance(0.3):
            inode.cover(inode.made)
            flushed = bytes(inode.seen)
        if random.chance(0.2):
            crash(medium, seed)
            assert [path for path, _ in medium.files()] == ["log"]
            assert bytes(inode.seen[: len(flushed)]) == flushed
            inode.truncate(len(flushed))
            inode.cover(inode.made)


def test_a_flush_covers_only_what_had_ended_before_it() -> None:
    inode = Inode()
    inode.write(b"before")
    until = inode.made
    inode.write(b" and after")
    inode.cover(until)
    assert bytes(inode.durable) == b"before"
    assert bytes(inode.seen) == b"before and after"


def test_two_flushes_that_overlap_cover_each_change_once() -> None:
    inode = Inode()
    inode.write(b"a")
    first = inode.made
    inode.write(b"b")
    second = inode.made
    inode.cover(second)
    inode.cover(first)
    assert bytes(inode.durable) == b"ab"
    assert inode.pending == []


def test_a_rename_is_durable_once_both_directories_are_flushed() -> None:
    medium, inode, other = Medium("m"), Inode(), Directory()
    named(medium, "old", inode)
    named(medium, "other", other)
    flush_names(medium)
    medium.change_names(NameChange(added=(other, "new", inode), removed=(medium.root, "old")))
    flush_names(medium)
    assert [path for path, _ in medium.files()] == ["other/new"]
    assert [path for path, _ in medium.durable_files()] == ["old"]
    medium.cover_names(other, other.made)
    assert [path for path, _ in medium.durable_files()] == ["other/new"]


def test_a_rename_without_a_flush_happened_or_did_not() -> None:
    seen = set()
    for seed in range(40):
        medium, inode = Medium("m"), Inode()
        named(medium, "old", inode)
        flush_names(medium)
        medium.change_names(
            NameChange(added=(medium.root, "new", inode), removed=(medium.root, "old"))
        )
        crash(medium, seed)
        seen.add(tuple(path for path, _ in medium.files()))
    assert seen == {("old",), ("new",)}


def test_an_unflushed_tail_may_be_cut_and_a_flushed_one_not() -> None:
    inode = Inode()
    inode.write(b"flushed")
    inode.cover(inode.made)
    assert inode.cut_uncertain() == 0
    inode.write(b"not")
    assert inode.cut_uncertain() == 3
    assert bytes(inode.seen) == b"flushed"


def test_damage_is_undone_where_it_still_is() -> None:
    medium, inode = Medium("m"), Inode()
    named(medium, "log", inode)
    flush_names(medium)
    inode.write(b"content")
    inode.cover(inode.made)
    medium.flip_bit("log", inode, SeededRandom(1, "flip"), faults(1))
    assert bytes(inode.seen) != b"content"
    assert medium.unflip() == 1
    assert bytes(inode.seen) == b"content"
    assert medium.unflip() == 0


def test_a_truncation_that_was_not_flushed_may_come_undone() -> None:
    sizes = set()
    for seed in range(40):
        medium, inode = Medium("m"), Inode()
        named(medium, "log", inode)
        flush_names(medium)
        inode.write(b"x" * 10)
        inode.cover(inode.made)
        inode.truncate(4)
        crash(medium, seed)
        sizes.add(len(inode.seen))
    assert sizes == {4, 10}


def test_a_copy_that_is_put_back_is_all_there_and_durable() -> None:
    medium, inode, below = Medium("m"), Inode(), Directory()
    named(medium, "log", inode)
    named(medium, "below", below)
    inner = Inode()
    medium.change_names(NameChange(added=(below, "inner", inner)))
    inode.write(b"first")
    inner.write(b"in it")
    copied = medium.copy()
    inode.write(b", second")
    named(medium, "later", Inode())
    medium.put_back(copied)
    crash(medium, 1)
    assert {path: bytes(each.seen) for path, each in medium.files()} == {
        "below/inner": b"in it",
        "log": b"first",
    }
    assert medium.copy() == copied


@pytest.mark.parametrize("is_for_good", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_what_another_program_left_of_a_file_stays_once_what_came_behind_it_is_flushed(
    seed: int, *, is_for_good: bool
) -> None:
    medium, inode = Medium("m"), Inode()
    named(medium, "log", inode)
    flush_names(medium)
    inode.write(b"flushed ")
    inode.cover(inode.made)
    inode.write(b"and not flushed")
    if is_for_good:
        medium.lose_bytes("log", 11, faults(seed))
    else:
        medium.cut_short("log", inode, 11, faults(seed))
    assert bytes(inode.seen) == b"flushed and"
    inode.write(b" more")
    inode.cover(inode.made)
    crash(medium, seed)
    assert bytes(inode.seen) == b"flushed and more"


def test_a_file_that_was_cut_short_is_given_back_whole() -> None:
    medium, inode = Medium("m"), Inode()
    named(medium, "log", inode)
    flush_names(medium)
    inode.write(b"not flushed")
    medium.cut_short("log", inode, 3, faults(0))
    medium.give_back()
    inode.write(b" yet")
    inode.cover(inode.made)
    crash(medium, 0)
    assert bytes(inode.seen) == b"not flushed yet"

"""A full disk loses nothing and blocks nothing for good; a failed flush ends everything."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tests.metadata_quorum.storage.storage_steps import MEMBER, MEMBERS, entry, persist
from tests.metadata_quorum.storage.stores import FETCHED, Store, check, fill
from tidelog.metadata_quorum.raft.effects import ResetLog
from tidelog.metadata_quorum.raft.types import HardState, Snapshot, SnapshotId
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

LATER = entry(14, 2, b"later 14 " * 3)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store({"flush_error": 1.0, "write_error": 1.0, "no_space": 1.0}) as made:
        made.suffer()
        yield made


def leave_free(store: Store, size_bytes: int) -> None:
    """On the file system."""
    store.medium.capacity_bytes = store.medium.used_bytes() + size_bytes


def make_room(store: Store) -> None:
    store.medium.capacity_bytes = 1 << 40


@pytest.mark.parametrize("free_bytes", [0, 1, 100, 170, 200, 300])
@pytest.mark.parametrize("size", [1, 30])
def test_a_write_that_does_not_fit_is_done_when_there_is_room(
    store: Store, free_bytes: int, size: int
) -> None:
    truth = store.run(fill(store, is_settled=False))
    storage = store.run(store.open())
    more = [entry(14, 2, b"more " * size), entry(15, 2, b"more " * size * 4)]
    for attempt in range(2):
        leave_free(store, free_bytes)
        with pytest.raises(TidelogError) as refused:
            store.run(storage.perform([persist(*more, term=3)]))
        assert refused.value.code is ErrorCode.STORAGE_FULL, attempt
    make_room(store)
    store.run(storage.perform([persist(*more, term=3)]))
    store.run(storage.perform([persist(entry(16, 3))]))
    recovered = store.run(store.open()).recovered
    assert recovered.entries[-3:] == (*more, entry(16, 3))
    assert recovered.hard_state == HardState(term=Term(3))
    assert len(recovered.entries) + recovered.entries[0].index - 1 == truth.end_index + 3


@pytest.mark.parametrize("is_machine", [False, True])
def test_what_did_not_fit_is_not_there_after_a_crash(store: Store, is_machine: bool) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    leave_free(store, 180)
    with pytest.raises(TidelogError):
        store.run(storage.perform([persist(LATER)]))
    make_room(store)
    store.kill()
    if is_machine:
        store.crash()
    assert check(store.run(store.open()).recovered, truth)


def test_a_mark_that_does_not_fit_is_written_when_there_is_room(store: Store) -> None:
    truth = store.run(fill(store, is_settled=False))
    storage = store.run(store.open())
    store.run(storage.perform([persist(LATER)]))
    for free_bytes in (0, 100, 250):
        leave_free(store, free_bytes)
        with pytest.raises(TidelogError) as refused:
            store.run(storage.settle())
        assert refused.value.code is ErrorCode.STORAGE_FULL
    make_room(store)
    before = len(store.files()["marks"])
    store.run(storage.settle())
    assert len(store.files()["marks"]) > before
    assert store.run(store.open()).recovered.entries[-1] == LATER
    assert truth.end_index == LATER.index - 1


def test_a_snapshot_that_does_not_fit_leaves_nothing_behind(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    before = store.files()
    leave_free(store, 150)
    new = SnapshotId(LogIndex(11), Term(2))
    with pytest.raises(TidelogError) as refused:
        store.run(storage.save_snapshot(new, MEMBERS, [b"state" * 50]))
    assert refused.value.code is ErrorCode.STORAGE_FULL
    assert store.files() == before
    make_room(store)
    store.run(storage.save_snapshot(new, MEMBERS, [b"state" * 50]))
    recovered = store.run(store.open()).recovered
    assert recovered.snapshot is not None
    assert recovered.snapshot.id == new
    check(recovered, truth)


def test_a_snapshot_whose_name_does_not_fit_is_no_failed_disk(store: Store) -> None:
    """A file system without room for one more file still takes appends to those there are."""
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    before = store.files()
    store.suffer("no_space")
    new = SnapshotId(LogIndex(11), Term(2))
    with pytest.raises(TidelogError) as refused:
        store.run(storage.save_snapshot(new, MEMBERS, [b"state"]))
    assert refused.value.code is ErrorCode.STORAGE_FULL
    assert store.files() == before
    store.suffer()
    store.run(storage.save_snapshot(new, MEMBERS, [b"state"]))
    recovered = store.run(store.open()).recovered
    assert recovered.snapshot is not None
    assert recovered.snapshot.id == new
    check(recovered, truth)


def test_a_fetched_piece_that_does_not_fit_is_written_when_there_is_room(store: Store) -> None:
    store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    position = store.run(storage.begin_fetched(FETCHED, 1_000))
    leave_free(store, 10)
    with pytest.raises(TidelogError) as refused:
        store.run(storage.write_fetched(FETCHED, position, b"a piece" * 10))
    assert refused.value.code is ErrorCode.STORAGE_FULL
    make_room(store)
    assert store.run(storage.begin_fetched(FETCHED, 1_000)) == position
    store.run(storage.write_fetched(FETCHED, position, b"a piece" * 10))


def test_a_write_that_failed_leaves_nothing_behind(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    store.suffer("write_error")
    with pytest.raises(TidelogError) as failed:
        store.run(storage.perform([persist(LATER)]))
    assert failed.value.code is ErrorCode.STORAGE_FAILED
    store.suffer()
    assert check(store.run(store.open()).recovered, truth)


@pytest.mark.parametrize("is_machine", [False, True])
def test_a_failed_flush_is_final(store: Store, is_machine: bool) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    store.suffer("flush_error")
    with pytest.raises(TidelogError) as failed:
        store.run(storage.perform([persist(LATER)]))
    assert failed.value.code is ErrorCode.STORAGE_FAILED
    store.suffer()
    snapshot = SnapshotId(LogIndex(11), Term(2))
    for again in (
        lambda: storage.perform([persist(LATER)]),
        storage.settle,
        lambda: storage.trim(LogIndex(9)),
        lambda: storage.save_snapshot(snapshot, MEMBERS, [b"state"]),
    ):
        with pytest.raises(TidelogError) as refused:
            store.run(again())
        assert refused.value.code is ErrorCode.STORAGE_FAILED
    store.run(storage.close())
    store.kill()
    store.medium.is_failed = False
    if is_machine:
        store.crash()
    recovered = store.run(store.open()).recovered
    is_there = recovered.entries[-1] == LATER
    entries = truth.entries + ((LATER,) if is_there else ())
    assert check(recovered, msgspec.structs.replace(truth, entries=entries))


@pytest.mark.parametrize("is_reset", [False, True])
def test_what_a_start_shows_after_a_failed_flush_is_durable(store: Store, is_reset: bool) -> None:
    """The kernel marks pages clean that it could not write: the next flush succeeds on nothing."""
    store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    snapshot_id = SnapshotId(LogIndex(12), Term(2))
    snapshot = store.run(storage.save_snapshot(snapshot_id, MEMBERS, [b"of 11"]))
    state = HardState(term=Term(3), voted_for=MEMBER)
    reset = ResetLog(sequence=0, snapshot=snapshot, hard_state=state)
    later = LATER if not is_reset else entry(12, 3)
    store.suffer("flush_error")
    with pytest.raises(TidelogError):
        store.run(storage.perform([*([reset] if is_reset else []), persist(later, term=3)]))
    store.suffer()
    store.kill()
    store.medium.is_failed = False
    for _, inode in store.medium.files():
        inode.pending.clear()
    shown = store.run(store.open()).recovered
    assert shown.entries[-1] == later
    store.crash()
    recovered = store.run(store.open()).recovered
    assert recovered.entries[-1] == later
    assert recovered == shown


@pytest.mark.parametrize("is_written", [False, True])
def test_a_write_that_was_broken_off_is_final(store: Store, is_written: bool) -> None:
    """Within its append or within its flush: nothing tells what of it took effect."""
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    first, second = entry(14, 2, b"first"), entry(15, 2, b"second")
    store.run(storage.perform([persist(first)]))

    async def break_off() -> None:
        before = store.medium.used_bytes()
        task = asyncio.ensure_future(storage.perform([persist(second)]))
        await asyncio.sleep(3e-6)
        for _ in range(1_000):
            if not is_written or store.medium.used_bytes() > before:
                break
            await asyncio.sleep(1e-6)
        await asyncio.sleep(5e-5 if is_written else 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.1)

    store.run(break_off())
    with pytest.raises(TidelogError) as refused:
        store.run(storage.perform([persist(second)]))
    assert refused.value.code is ErrorCode.STORAGE_FAILED
    assert ("flush" if is_written else "write") in refused.value.happened
    store.run(storage.close())
    recovered = store.run(store.open()).recovered
    assert check(recovered, msgspec.structs.replace(truth, entries=(*truth.entries, first, second)))


def test_the_log_does_not_give_way_to_a_snapshot_that_is_gone(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    state = HardState(term=Term(2), voted_for=MEMBER)
    gone = Snapshot(id=FETCHED, members=MEMBERS, size_bytes=10)
    with pytest.raises(TidelogError) as refused:
        store.run(storage.perform([ResetLog(sequence=0, snapshot=gone, hard_state=state)]))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    assert check(store.run(store.open()).recovered, truth)

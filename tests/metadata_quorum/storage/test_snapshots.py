"""Snapshots: the newest one that is whole and fits the log, fetched in pieces and checked."""

from collections.abc import Iterator

import pytest

from tests.metadata_quorum.storage.storage_steps import MEMBER, MEMBERS, entry, persist
from tests.metadata_quorum.storage.stores import FETCHED, Store, check, fill
from tidelog.metadata_quorum.raft.effects import ResetLog
from tidelog.metadata_quorum.raft.types import HardState, SnapshotId
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.metadata_quorum.storage.snapshot_files import snapshot_name
from tidelog.metadata_quorum.storage.snapshot_format import SnapshotContent, encode_snapshot
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

FILE = b"".join(
    encode_snapshot(SnapshotContent(id=FETCHED, members=MEMBERS, state=(b"fetched", b"state" * 9)))
)
STATE = HardState(term=Term(2), voted_for=MEMBER)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as made:
        yield made


async def fetch(storage: QuorumStorageFiles, data: bytes) -> None:
    """In pieces of 30 bytes, from where an earlier one ended."""
    position = await storage.begin_fetched(FETCHED, len(data))
    for start in range(position, len(data), 30):
        await storage.write_fetched(FETCHED, start, data[start : start + 30])


def opened(store: Store) -> QuorumStorageFiles:
    """With half a fetch of something else thrown away."""
    store.run(fill(store, is_settled=True))
    files = store.files()
    store.put({path: files[path] for path in files if not path.endswith(".fetch")})
    return store.run(store.open())


def test_a_fetch_goes_on_where_a_killed_one_ended(store: Store) -> None:
    storage = opened(store)
    assert store.run(storage.begin_fetched(FETCHED, len(FILE))) == 0
    store.run(storage.write_fetched(FETCHED, 0, FILE[:50]))
    storage = store.run(store.open())
    assert store.run(storage.begin_fetched(FETCHED, len(FILE))) == 50
    store.run(fetch(storage, FILE))
    snapshot = store.run(storage.finish_fetched(FETCHED))
    assert (snapshot.id, snapshot.size_bytes) == (FETCHED, len(FILE))
    assert store.run(storage.load_state(snapshot)) == (b"fetched", b"state" * 9)


def test_pieces_of_another_snapshot_are_not_gone_on_with(store: Store) -> None:
    storage = opened(store)
    other = SnapshotId(LogIndex(21), Term(2))
    assert store.run(storage.begin_fetched(other, 100)) == 0
    store.run(storage.write_fetched(other, 0, b"piece"))
    assert store.run(storage.begin_fetched(FETCHED, 100)) == 0
    assert snapshot_name(other) + ".fetch" not in store.files()


def test_a_piece_at_the_wrong_place_is_refused(store: Store) -> None:
    storage = opened(store)
    store.run(storage.begin_fetched(FETCHED, 100))
    for position in (0, 4, 6):
        if position:
            with pytest.raises(TidelogError) as refused:
                store.run(storage.write_fetched(FETCHED, position, b"piece"))
            assert refused.value.code is ErrorCode.INVALID_ARGUMENT
        else:
            store.run(storage.write_fetched(FETCHED, 0, b"piece"))


@pytest.mark.parametrize("position", range(0, len(FILE), 7))
def test_a_corrupt_piece_is_found_kept_aside_and_fetched_anew(store: Store, position: int) -> None:
    storage = opened(store)
    wrong = FILE[:position] + bytes([FILE[position] ^ 4]) + FILE[position + 1 :]
    store.run(fetch(storage, wrong))
    with pytest.raises(TidelogError) as refused:
        store.run(storage.finish_fetched(FETCHED))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    assert store.files()["fetch.damaged"] == wrong
    assert snapshot_name(FETCHED) not in store.files()
    assert store.run(storage.begin_fetched(FETCHED, len(FILE))) == 0
    store.run(fetch(storage, FILE))
    assert store.run(storage.finish_fetched(FETCHED)).id == FETCHED


@pytest.mark.parametrize("missing_bytes", [1, 20, len(FILE)])
def test_a_fetch_that_is_not_complete_is_corrupt(store: Store, missing_bytes: int) -> None:
    storage = opened(store)
    store.run(fetch(storage, FILE[:-missing_bytes]))
    with pytest.raises(TidelogError) as refused:
        store.run(storage.finish_fetched(FETCHED))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT


def test_a_snapshot_that_is_not_the_one_wanted_is_corrupt(store: Store) -> None:
    storage = opened(store)
    other = SnapshotContent(
        id=SnapshotId(LogIndex(19), Term(2)), members=MEMBERS, state=(b"fetched",)
    )
    store.run(fetch(storage, b"".join(encode_snapshot(other))))
    with pytest.raises(TidelogError) as refused:
        store.run(storage.finish_fetched(FETCHED))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT


def test_a_snapshot_is_read_in_pieces_until_it_is_gone(store: Store) -> None:
    storage = opened(store)
    snapshot = storage.recovered.snapshot
    assert snapshot is not None
    whole = store.files()[snapshot_name(snapshot.id)]
    pieces = []
    for position in range(0, len(whole), 40):
        piece = store.run(storage.read_snapshot(snapshot.id, position, 40))
        assert piece is not None
        assert piece[1] == len(whole)
        pieces.append(piece[0])
    assert b"".join(pieces) == whole
    for end_index in (10, 11):
        snapshot_id = SnapshotId(LogIndex(end_index), Term(2))
        store.run(storage.save_snapshot(snapshot_id, MEMBERS, [b"state"]))
    assert store.run(storage.read_snapshot(snapshot.id, 0, 40)) is None


def test_a_fetched_snapshot_outlives_one_that_is_saved_before_it_is_put_in_use(
    store: Store,
) -> None:
    storage = opened(store)
    store.run(fetch(storage, FILE))
    fetched = store.run(storage.finish_fetched(FETCHED))
    store.run(storage.save_snapshot(SnapshotId(LogIndex(11), Term(2)), MEMBERS, [b"of 10"]))
    store.run(storage.perform([ResetLog(sequence=0, snapshot=fetched, hard_state=STATE)]))
    recovered = store.run(store.open()).recovered
    assert recovered.snapshot == fetched
    assert recovered.entries == ()


def test_a_snapshot_in_use_outlives_an_older_one_that_is_saved_after_it(store: Store) -> None:
    storage = opened(store)
    store.run(fetch(storage, FILE))
    fetched = store.run(storage.finish_fetched(FETCHED))
    store.run(storage.perform([ResetLog(sequence=0, snapshot=fetched, hard_state=STATE)]))
    store.run(storage.save_snapshot(SnapshotId(LogIndex(11), Term(2)), MEMBERS, [b"of 10"]))
    entries = [entry(index, 2) for index in range(20, 26)]
    store.run(storage.perform([persist(*entries)]))
    newest = SnapshotId(LogIndex(24), Term(2))
    store.run(storage.save_snapshot(newest, MEMBERS, [b"of 23"]))
    files = store.files()
    name = snapshot_name(newest)
    store.put(files | {name: files[name][:-1]})
    recovered = store.run(store.open()).recovered
    assert recovered.snapshot == fetched
    assert recovered.entries == tuple(entries)
    assert recovered.hard_state.repair is None


def test_a_fetched_snapshot_that_was_never_put_in_use_changes_nothing(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    files = store.files()
    store.put({path: files[path] for path in files if not path.endswith(".fetch")})
    storage = store.run(store.open())
    store.run(fetch(storage, FILE))
    store.run(storage.finish_fetched(FETCHED))
    assert check(store.run(store.open()).recovered, truth)


def test_a_damaged_snapshot_is_kept_aside_and_the_older_one_used(store: Store) -> None:
    truth = store.run(fill(store, is_settled=True))
    storage = store.run(store.open())
    for end_index in (9, 12):
        snapshot_id = SnapshotId(LogIndex(end_index), Term(2))
        store.run(storage.save_snapshot(snapshot_id, MEMBERS, [b"of %d" % end_index]))
    files = store.files()
    name = snapshot_name(SnapshotId(LogIndex(12), Term(2)))
    damaged = files[name].replace(b"of 12", b"of 13")
    store.put(files | {name: damaged})
    storage = store.run(store.open())
    assert check(storage.recovered, truth)
    snapshot = storage.recovered.snapshot
    assert snapshot is not None
    assert store.run(storage.load_state(snapshot)) == (b"of 9",)
    assert store.files()[f"{name}.damaged"] == damaged
    assert name not in store.files()


def test_a_snapshot_that_rots_while_the_storage_is_open_is_corrupt(store: Store) -> None:
    storage = opened(store)
    snapshot = storage.recovered.snapshot
    assert snapshot is not None
    inode = dict(store.medium.files())[snapshot_name(snapshot.id)]
    inode.seen[-40] ^= 1
    with pytest.raises(TidelogError) as refused:
        store.run(storage.load_state(snapshot))
    assert refused.value.code is ErrorCode.STORAGE_CORRUPT
    assert snapshot_name(snapshot.id) in str(refused.value)


def test_no_piece_is_given_away_of_a_snapshot_that_has_rotted(store: Store) -> None:
    storage = opened(store)
    snapshot = storage.recovered.snapshot
    assert snapshot is not None
    inode = dict(store.medium.files())[snapshot_name(snapshot.id)]
    for position in range(0, len(inode.seen), 7):
        inode.seen[position] ^= 1
        assert store.run(storage.read_snapshot(snapshot.id, 0, 5)) is None, position
        inode.seen[position] ^= 1
    assert store.run(storage.read_snapshot(snapshot.id, 0, 5)) is not None
    store.run(storage.save_snapshot(snapshot.id, MEMBERS, [b"anew"]))
    inode.seen[0] ^= 1
    piece = store.run(storage.read_snapshot(snapshot.id, 0, 5))
    assert piece is not None, "one of the same entries takes the place of a damaged one"

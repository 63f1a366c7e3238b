"""Bytes that nobody wrote: every loader returns something sensible or raises a typed error."""

import random

import pytest

from tests.metadata_quorum.storage.storage_steps import MEMBERS, UUID
from tests.metadata_quorum.storage.stores import Files, Store, fill
from tidelog.metadata_quorum.raft.types import Recovered, SnapshotId
from tidelog.metadata_quorum.storage.marks import FIRST_MARK, encode_mark, newest_mark
from tidelog.metadata_quorum.storage.scan import scan_segment
from tidelog.metadata_quorum.storage.snapshot_format import (
    SnapshotContent,
    decode_snapshot,
    encode_snapshot,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

pytestmark = [pytest.mark.fuzz, pytest.mark.slow]

ROUNDS = 400


def mutated(content: bytes, drawn: random.Random) -> bytes:
    """One to four changes: a bit, a stretch of noise or zeros, a cut, a repeat, a swap."""
    data = bytearray(content)
    for _ in range(drawn.randint(1, 4)):
        size = len(data)
        begin = drawn.randrange(size + 1)
        end = min(size, begin + drawn.choice([1, 8, 40, 300]))
        match drawn.randrange(6):
            case 0 if begin < size:
                data[begin] ^= 1 << drawn.randrange(8)
            case 1:
                data[begin:end] = drawn.randbytes(end - begin)
            case 2:
                data[begin:end] = bytes(end - begin)
            case 3:
                del data[begin:end]
            case 4:
                data[begin:begin] = data[begin:end]
            case _:
                moved = bytes(data[begin:end])
                del data[begin:end]
                place = drawn.randrange(len(data) + 1)
                data[place:place] = moved
    return bytes(data)


def check_sensible(recovered: Recovered) -> None:
    """What the core may begin with, whatever was lost."""
    entries = recovered.entries
    if entries:
        first = entries[0].index
        assert [each.index for each in entries] == list(range(first, first + len(entries)))
        terms = [each.term for each in entries]
        assert terms == sorted(terms), "terms never fall"
    base = recovered.snapshot.last_index if recovered.snapshot else 0
    end = max(base, entries[-1].index if entries else 0)
    assert not entries or entries[0].index <= base + 1, "no gap behind the snapshot"
    repair = recovered.hard_state.repair
    if repair is not None:
        assert repair.from_index == end + 1
        assert repair.last_index >= repair.from_index


def beyond_snapshot(recovered: Recovered) -> tuple[object, ...]:
    """Of the entries only those that no snapshot holds: more or fewer of the others may be left."""
    base = recovered.snapshot.last_index if recovered.snapshot else 0
    entries = tuple(each for each in recovered.entries if each.index > base)
    return recovered.hard_state, recovered.snapshot, entries


def test_mutated_directories_open_or_are_refused() -> None:
    drawn = random.Random(7)
    outcomes = {"opened": 0, "refused": 0}
    with Store() as store:
        store.run(fill(store, is_settled=False))
        whole = store.files()
        names = [name for name in sorted(whole) if name != "quorum.json"]
        for number in range(ROUNDS):
            files: Files = dict(whole)
            for name in drawn.sample(names, drawn.randint(1, 3)):
                files[name] = mutated(files[name], drawn)
            store.put(files)
            if drawn.random() < 0.5:
                store.crash()
            try:
                recovered = store.run(store.open()).recovered
            except TidelogError as error:
                assert error.code is ErrorCode.STORAGE_CORRUPT, (number, error)  # noqa: PT017
                outcomes["refused"] += 1
                continue
            check_sensible(recovered)
            again = store.run(store.open()).recovered
            assert beyond_snapshot(again) == beyond_snapshot(recovered), number
            outcomes["opened"] += 1
    assert min(outcomes.values()) > 0, outcomes


def test_files_that_were_exchanged_open_or_are_refused() -> None:
    drawn = random.Random(8)
    with Store() as store:
        store.run(fill(store, is_settled=True))
        whole = store.files()
        names = [name for name in sorted(whole) if name != "quorum.json"]
        for _ in range(ROUNDS // 4):
            one, other = drawn.sample(names, 2)
            store.put(whole | {one: whole[other], other: whole[one]})
            try:
                check_sensible(store.run(store.open()).recovered)
            except TidelogError as error:
                assert error.code is ErrorCode.STORAGE_CORRUPT, (one, other)  # noqa: PT017


def test_noise_is_no_block_and_no_mark() -> None:
    drawn = random.Random(9)
    mark = encode_mark(FIRST_MARK)
    for _ in range(ROUNDS):
        noise = drawn.randbytes(drawn.randrange(2_000)).replace(b"\0", b"TQB1")
        assert scan_segment(noise, UUID).blocks == ()
        assert newest_mark(noise) is None
        assert newest_mark(mutated(mark, drawn)) in (None, FIRST_MARK)


def test_mutated_snapshots_are_refused() -> None:
    drawn = random.Random(10)
    content = SnapshotContent(
        id=SnapshotId(LogIndex(7), Term(2)), members=MEMBERS, state=(b"state", b"", b"more" * 40)
    )
    whole = b"".join(encode_snapshot(content))
    for _ in range(ROUNDS * 5):
        data = mutated(whole, drawn)
        if data == whole:
            continue
        with pytest.raises(TidelogError) as refused:
            decode_snapshot(data, "here")
        assert refused.value.code is ErrorCode.STORAGE_CORRUPT

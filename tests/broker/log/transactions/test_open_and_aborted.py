"""Open transactions, the last stable offset and the aborted index, against a plain model."""

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.log.transactions.aborted import (
    BLOCK_ENTRIES,
    AbortedIndex,
    AbortedTransaction,
    encode_aborted,
)
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset


class Batch(msgspec.Struct, frozen=True):
    """One offset of a log: data of a transaction, plain data, or a marker."""

    producer_id: int
    kind: str
    """plain, data, commit or abort"""


LOGS = st.lists(
    st.builds(
        Batch,
        st.integers(0, 3),
        st.sampled_from(["plain", "data", "data", "data", "commit", "abort", "abort"]),
    ),
    max_size=40,
)


class Fate(msgspec.Struct):
    """What the model knows of one transaction."""

    producer_id: int
    first_offset: int
    marker_offset: int = -1
    is_aborted: bool = False


def fates_of(log: list[Batch]) -> list[Fate]:
    """The transactions of a log, read from its beginning."""
    fates: list[Fate] = []
    for offset, batch in enumerate(log):
        is_mine = [each.producer_id == batch.producer_id for each in fates]
        running = [
            each
            for each, mine in zip(fates, is_mine, strict=True)
            if mine and each.marker_offset < 0
        ]
        if batch.kind == "data" and not running:
            fates.append(Fate(batch.producer_id, offset))
        elif batch.kind in ("commit", "abort") and running:
            (fate,) = running
            fate.marker_offset, fate.is_aborted = offset, batch.kind == "abort"
    return fates


def feed(
    transactions: OpenTransactions, log: list[Batch], first_offset: int = 0
) -> list[AbortedTransaction]:
    """The log's batches one after the other; the entries that came of them."""
    entries = []
    for offset, batch in enumerate(log[first_offset:], first_offset):
        if batch.kind == "data":
            transactions.begin(batch.producer_id, offset)
        elif batch.kind != "plain":
            is_aborted = batch.kind == "abort"
            entry = transactions.end(batch.producer_id, offset, is_aborted=is_aborted)
            entries += [] if entry is None else [entry]
    return entries


@given(log=LOGS, data=st.data())
def test_the_last_stable_offset_lies_below_all_whose_end_is_not_committed(
    log: list[Batch], data: st.DataObject
) -> None:
    transactions, high_watermark, before = OpenTransactions(), 0, 0
    for end in range(len(log) + 1):
        if end:
            feed(transactions, log[:end], end - 1)
        high_watermark = data.draw(st.integers(high_watermark, end))
        transactions.commit_to(high_watermark)
        uncertain = [
            each.first_offset
            for each in fates_of(log[:end])
            if each.marker_offset < 0 or each.marker_offset >= high_watermark
        ]
        stable = transactions.last_stable_offset(high_watermark)
        assert stable == min([high_watermark, *uncertain])
        assert stable >= before, "it falls only if the log is cut"
        before = stable


@given(log=LOGS, data=st.data())
def test_one_that_goes_on_from_a_snapshot_knows_the_same_as_one_that_saw_all(
    log: list[Batch], data: st.DataObject
) -> None:
    whole, begun = OpenTransactions(), OpenTransactions()
    middle = data.draw(st.integers(0, len(log)))
    feed(begun, log[:middle])
    started = [(each, begun.start_of(each)) for each in range(4) if begun.start_of(each) >= 0]
    restored = OpenTransactions(data.draw(st.permutations(started)))
    assert feed(whole, log)[len(feed(OpenTransactions(), log[:middle])) :] == feed(
        restored, log, middle
    )
    assert restored.first_open_offset() == whole.first_open_offset()
    for producer_id in range(4):
        assert restored.start_of(producer_id) == whole.start_of(producer_id)
    assert len(restored) == len(whole)


@given(log=LOGS, data=st.data())
def test_the_indexes_of_all_segments_tell_exactly_the_aborted_batches(
    log: list[Batch], data: st.DataObject
) -> None:
    entries = feed(OpenTransactions(), log)
    bounds = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=3)) | {0, len(log) + 1})
    indexes = []
    for first, behind in pairwise(bounds):
        index = AbortedIndex()
        for entry in entries:
            if first <= entry.marker_offset < behind:
                index.add(entry)
        indexes.append(index)
    begin = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(begin, len(log)))
    told = [entry for index in indexes for entry in index.overlapping(begin, end)]
    wanted = [
        AbortedTransaction(each.producer_id, Offset(each.first_offset), each.marker_offset)
        for each in fates_of(log)
        if each.is_aborted and each.first_offset < end and each.marker_offset >= begin
    ]
    assert sorted(told, key=lambda each: each.marker_offset) == sorted(
        wanted, key=lambda each: each.marker_offset
    )


@given(log=LOGS, data=st.data())
def test_an_index_is_stored_and_cut(log: list[Batch], data: st.DataObject) -> None:
    entries = feed(OpenTransactions(), log)
    stored = encode_aborted(entries)
    index = AbortedIndex.decode(stored, where="a section")
    assert index.encode() == stored
    assert len(index) == len(entries)
    end = data.draw(st.integers(0, len(log)))
    index.cut(end)
    assert index.encode() == encode_aborted(each for each in entries if each.marker_offset < end)


def test_a_repeated_marker_ends_nothing() -> None:
    transactions = OpenTransactions()
    assert transactions.end(7, 3, is_aborted=True) is None
    transactions.begin(7, 4)
    transactions.begin(7, 5)
    assert transactions.end(7, 6, is_aborted=True) == AbortedTransaction(7, Offset(4), 6)
    assert transactions.end(7, 8, is_aborted=True) is None


def test_a_transaction_bounds_readers_until_its_marker_is_committed() -> None:
    transactions = OpenTransactions()
    transactions.begin(7, 2)
    transactions.commit_to(4)
    assert transactions.last_stable_offset(4) == 2
    transactions.end(7, 4, is_aborted=False)
    assert transactions.last_stable_offset(4) == 2, "the marker may still be cut off"
    transactions.commit_to(5)
    assert transactions.last_stable_offset(5) == 5


@pytest.mark.parametrize("seed", range(12))
def test_of_many_entries_the_same_are_found_whatever_is_passed_over(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(BLOCK_ENTRIES - 2, 3 * BLOCK_ENTRIES)
    lengths = [chance.choice([1, 30, 3_000]) for _ in range(count)]
    begin, width, cut = chance.randint(0, 4_500), chance.randint(0, 600), chance.randint(0, 4_500)
    markers = [3_000 + 2 * place for place in range(len(lengths))]
    entries = [
        AbortedTransaction(place, Offset(marker - length), marker)
        for place, (marker, length) in enumerate(zip(markers, lengths, strict=True))
    ]
    grown = AbortedIndex()
    for each in entries:
        grown.add(each)
    stored = AbortedIndex.decode(grown.encode(), where="a section")
    left = entries
    for end_offset in (5_000, cut):
        grown.cut(end_offset)
        stored.cut(end_offset)
        left = [each for each in entries if each.marker_offset < min(5_000, end_offset)]
        for index in (grown, stored, AbortedIndex(grown.encode())):
            assert index.overlapping(begin, begin + width) == [
                each
                for each in left
                if each.marker_offset >= begin and each.first_offset < begin + width
            ]
    later = AbortedTransaction(1, Offset(0), 9_000)
    grown.add(later)
    assert grown.overlapping(8_000, 8_001) == [later]
    assert grown.overlapping(0, 1) == [*(each for each in left if not each.first_offset), later]


GOOD = encode_aborted([AbortedTransaction(1, Offset(2), 9), AbortedTransaction(2, Offset(0), 11)])


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD + GOOD[24:],
        GOOD[24:] + GOOD[:24],
        encode_aborted([AbortedTransaction(-1, Offset(2), 9)]),
        encode_aborted([AbortedTransaction(1, Offset(-1), 9)]),
        encode_aborted([AbortedTransaction(1, Offset(9), 9)]),
    ],
)
def test_a_section_that_cannot_be_is_damage(data: bytes) -> None:
    assert len(AbortedIndex.decode(GOOD, where="a section")) == 2
    with pytest.raises(TidelogError) as raised:
        AbortedIndex.decode(data, where="a section")
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT

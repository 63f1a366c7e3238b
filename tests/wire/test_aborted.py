"""The filter of aborted batches: by producer and first offset, each stretch ended by its marker."""

from random import Random

import pytest

from tests.support.transaction_log import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    StoredBatch,
    TransactionLog,
    random_log,
)
from tidelog.wire.batch import (
    NONE_LEFT_OUT,
    AbortedStretch,
    BatchHeader,
    aborted_batches,
    read_header,
)
from tidelog.wire.ids import Offset, ProducerId


def headers_of(batches: list[StoredBatch]) -> list[BatchHeader]:
    return [read_header(each.data) for each in batches]


def stretch(producer_id: int, first_offset: int) -> AbortedStretch:
    return AbortedStretch(ProducerId(producer_id), Offset(first_offset))


def log_of(*steps: tuple[str, int]) -> TransactionLog:
    log = TransactionLog()
    for kind, producer_id in steps:
        log.add(kind, producer_id)
    return log


def test_without_aborted_transactions_nothing_is_made() -> None:
    log = log_of((DATA, 1), (COMMIT, 1))
    assert aborted_batches(headers_of(log.batches), ()) is NONE_LEFT_OUT


def test_the_next_marker_of_the_producer_ends_the_stretch() -> None:
    log = log_of((DATA, 1), (DATA, 1), (ABORT, 1), (DATA, 1), (COMMIT, 1))
    assert aborted_batches(headers_of(log.batches), [stretch(1, 0)]) == {0, 1}


def test_a_marker_of_another_producer_ends_nothing() -> None:
    log = log_of((DATA, 1), (DATA, 2), (COMMIT, 2), (DATA, 1), (ABORT, 1))
    assert aborted_batches(headers_of(log.batches), [stretch(1, 0)]) == {0, 3}


def test_two_stretches_of_one_producer_leave_what_is_between_them() -> None:
    log = log_of(
        (DATA, 1), (ABORT, 1), (DATA, 1), (COMMIT, 1), (PLAIN, 1), (DATA, 1), (ABORT, 1), (DATA, 1)
    )
    found = aborted_batches(headers_of(log.batches), [stretch(1, 5), stretch(1, 0)])
    assert found == {0, 5}


def test_a_stretch_that_began_before_the_answer_counts_from_its_first_batch() -> None:
    log = log_of((DATA, 1), (PLAIN, -1), (DATA, 1), (ABORT, 1))
    assert aborted_batches(headers_of(log.batches[1:]), [stretch(1, 0)]) == {2}


def test_what_a_producer_writes_outside_transactions_is_never_left_out() -> None:
    log = log_of((DATA, 1), (ABORT, 1))
    plain = log_of((PLAIN, 1))
    headers = headers_of([log.batches[0]]) + headers_of(plain.batches)
    assert aborted_batches(headers, [stretch(1, 0)]) == {0}
    assert aborted_batches(headers[1:], [stretch(1, 0)]) == NONE_LEFT_OUT


@pytest.mark.parametrize("seed", range(60))
def test_of_any_part_of_any_log_exactly_the_aborted_batches_are_found(seed: int) -> None:
    random = Random(seed)
    log = random_log(random, 80)
    for _ in range(40):
        first = random.randrange(len(log.batches))
        part = log.batches[first : random.randrange(first, len(log.batches)) + 1]
        begin, end = part[0].base_offset, part[-1].next_offset
        stretches = log.aborted(begin, end)
        random.shuffle(stretches)
        wanted = {each.base_offset for each in part if log.is_aborted(each)}
        assert aborted_batches(headers_of(part), stretches) == wanted

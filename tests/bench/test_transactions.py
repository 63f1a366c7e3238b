"""What the lines of transactions count, without a node."""

import pytest

from bench.transaction_clients import (
    WARM_RECORDS,
    WARM_TRANSACTIONS,
    Done,
    Work,
    looped,
    plain,
    read,
)
from bench.transactions import at_share, row


class Steps:
    """Counts what a loop does; the time is over after so many transactions."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def begin(self) -> None:
        self.done.append("begin")

    def send(self, count: int) -> None:
        self.done.append(f"send {count}")

    def end(self) -> None:
        self.done.append("end")


def test_every_transaction_is_begun_filled_and_ended_and_warming_up_does_not_count() -> None:
    steps = Steps()
    work = Work(bootstrap="", topic="", records_a_transaction=7, seconds=0.001)
    done = looped(work, steps.begin, steps.send, steps.end)
    warm = ["begin", f"send {WARM_RECORDS}", "end"] * WARM_TRANSACTIONS
    assert steps.done[: len(warm)] == warm
    measured = steps.done[len(warm) :]
    assert measured == ["begin", "send 7", "end"] * len(done.commits_ms)
    assert done.records == 7 * len(done.commits_ms) > 0


def test_the_same_without_transactions_is_flushed_once() -> None:
    steps = Steps()
    work = Work(bootstrap="", topic="", records_a_transaction=7, seconds=0.001)
    done = plain(work, steps.send, steps.end)
    assert steps.done.count("end") == WARM_TRANSACTIONS + 1
    assert done.records == 7 * steps.done.count("send 7")


def test_a_reader_counts_from_its_first_records_to_the_last() -> None:
    answers = iter([0, 0, 5, 10, 0, 10])
    done = read(Work(bootstrap="", topic="", records=25), lambda: next(answers))
    assert done.records == 20


@pytest.mark.parametrize(("share", "expected"), [(0.5, 3.0), (0.99, 4.0), (0.0, 1.0)])
def test_shares_are_of_what_was_measured(share: float, expected: float) -> None:
    assert at_share([1.0, 2.0, 3.0, 4.0], share) == expected


def test_a_row_has_the_ratio_of_medians_and_commits_of_all_repetitions() -> None:
    with_them = [
        Done(records=100, seconds=1.0, commits_ms=[1.0, 2.0]),
        Done(records=300, seconds=1.0, commits_ms=[3.0, 4.0]),
        Done(records=200, seconds=2.0, commits_ms=[5.0, 6.0]),
    ]
    without = [Done(records=1_000, seconds=1.0)]
    assert row("c", 10, with_them, without) == (
        *("c", "10", "100", "1,000", "0.10"),
        *("1.5", "4.0", "6.0"),
    )

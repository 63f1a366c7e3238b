"""The leader-epoch cache: which epoch wrote which offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.log.leader_epochs import EpochStart, LeaderEpochs

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30)
"""For each batch: how much later its epoch is, and how many offsets it has."""


def written(steps: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """The cache, and the epoch of each offset."""
    epochs, owners, epoch = LeaderEpochs(), list[int](), 0
    for step, offsets in steps:
        epoch += step
        epochs.note(epoch, len(owners))
        owners += [epoch] * offsets
    return epochs, owners


@given(steps=STEPS)
def test_each_offset_belongs_to_the_epoch_that_wrote_it(steps: list[tuple[int, int]]) -> None:
    epochs, owners = written(steps)
    for offset, owner in enumerate(owners):
        assert epochs.epoch_at(offset) == owner
    assert epochs.latest == (owners[-1] if owners else -1)
    assert epochs.epoch_at(-1) == -1


@given(steps=STEPS, asked=st.integers(-1, 100))
def test_an_epoch_ends_where_a_later_one_begins(steps: list[tuple[int, int]], asked: int) -> None:
    epochs, owners = written(steps)
    below = [owner for owner in owners if owner <= asked]
    expected = (below[-1], len(below)) if below else (-1, -1)
    assert epochs.end_offset_of(asked, len(owners)) == expected


@given(steps=STEPS, end=st.integers(0, 160))
def test_a_cut_log_equals_one_that_was_never_longer(steps: list[tuple[int, int]], end: int) -> None:
    epochs, owners = written(steps)
    epochs.truncate(end)
    shorter = LeaderEpochs()
    for offset, owner in enumerate(owners[:end]):
        shorter.note(owner, offset)
    assert epochs.starts == shorter.starts


@given(steps=STEPS, start=st.integers(0, 160))
def test_a_trimmed_log_knows_the_epochs_of_what_it_holds(
    steps: list[tuple[int, int]], start: int
) -> None:
    epochs, owners = written(steps)
    start = min(start, max(0, len(owners) - 1))
    epochs.trim(start)
    for offset in range(start, len(owners)):
        assert epochs.epoch_at(offset) == owners[offset]
    assert epochs.epoch_at(start - 1) == -1
    assert [each.epoch for each in epochs.starts] == sorted(set(owners[start:]))


def test_a_copy_changes_by_itself() -> None:
    epochs = LeaderEpochs((EpochStart(1, 0),))
    other = epochs.copy()
    other.note(2, 5)
    assert epochs.starts == (EpochStart(1, 0),)
    assert other.starts == (EpochStart(1, 0), EpochStart(2, 5))


def test_an_epoch_never_falls_and_never_begins_before_another() -> None:
    epochs = LeaderEpochs((EpochStart(3, 10),))
    with pytest.raises(AssertionError, match="epoch 2 writes after epoch 3"):
        epochs.note(2, 20)
    with pytest.raises(AssertionError, match="where an earlier one does"):
        epochs.note(4, 9)


def test_an_epoch_of_which_all_was_trimmed_gives_way_to_the_next() -> None:
    epochs = LeaderEpochs((EpochStart(1, 0), EpochStart(3, 10)))
    epochs.trim(20)
    epochs.note(4, 20)
    assert epochs.starts == (EpochStart(4, 20),)

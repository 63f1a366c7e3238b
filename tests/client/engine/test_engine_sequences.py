"""Numbered batches against brokers that lose, delay and repeat: each stored once, in order, or
reported truthfully."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.support.engine_world import ProducerWorld
from tests.client.support.sequence_model import Brokers, Log
from tidelog.client.engine.produce.batch import Acknowledgement, Outcome
from tidelog.wire.errors import ErrorCode

MOVES = (
    *("produce",) * 6,
    *("serve",) * 6,
    *("answer",) * 4,
    *("commit",) * 4,
    *("connect", "connect", "metadata", "give_id", "give_id"),
    *("wait", "wait", "break_stream", "elect"),
)


def run(seed: int, moves: tuple[str, ...], *, may_lose_committed: bool) -> Brokers:
    """A drawn history, then calm until everything has ended."""
    random = Random(seed)
    world = ProducerWorld(
        batch_bytes=100, in_flight_max=random.choice((1, 3, 5, 20)), is_idempotent=True
    )
    brokers = Brokers(world, may_lose_committed=may_lose_committed)
    brokers.begin()
    for _ in range(random.randrange(20, 250)):
        getattr(brokers, random.choice(moves))(random.randrange(100_000))
    brokers.calm_down(random)
    assert not world.core.lanes, "everything ends"
    assert len(world.outcomes) == world.accumulator.opened_count, "each batch has an outcome"
    return brokers


def check(brokers: Brokers, *, is_all_kept: bool) -> None:
    """What the futures say is what the logs hold."""
    outcomes = brokers.world.outcomes
    for partition, log in enumerate(brokers.logs):
        numbers = [entry.number for entry in log.entries]
        assert len(numbers) == len(set(numbers)), f"partition {partition}: stored twice: {numbers}"
        assert numbers == sorted(numbers), f"partition {partition}: out of order: {numbers}"
        for place, number in enumerate(numbers):
            check_stored(log, place, outcomes[number], is_all_kept=is_all_kept)
    stored = {entry.number for log in brokers.logs for entry in log.entries}
    lost = {
        number
        for number, outcome in outcomes.items()
        if isinstance(outcome, Acknowledgement) and number not in stored
    }
    assert not (is_all_kept and lost), f"acknowledged and not there: {sorted(lost)}"


def check_stored(log: Log, place: int, outcome: Outcome, *, is_all_kept: bool) -> None:
    number = log.entries[place].number
    if isinstance(outcome, Acknowledgement):
        if is_all_kept and outcome.base_offset >= 0:
            assert outcome.base_offset == log.offset(place), f"{number} has another offset"
    else:
        assert outcome.code is ErrorCode.INDETERMINATE, f"{number} failed for sure and is there"


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_batch_is_stored_once_in_order_or_reported_as_it_is(seed: int) -> None:
    check(run(seed, MOVES, may_lose_committed=False), is_all_kept=True)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 32))
def test_partitions_that_forget_their_producers_store_nothing_twice(seed: int) -> None:
    check(run(seed, (*MOVES, "forget"), may_lose_committed=False), is_all_kept=True)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, 1 << 32))
def test_where_acknowledged_records_are_lost_the_rest_is_in_order_and_once(seed: int) -> None:
    check(run(seed, MOVES, may_lose_committed=True), is_all_kept=False)


def test_without_faults_everything_is_stored() -> None:
    """The model is no excuse: in calm nothing is refused, nothing is in doubt."""
    world = ProducerWorld(batch_bytes=100, in_flight_max=5, is_idempotent=True)
    brokers = Brokers(world)
    brokers.is_calm = True
    brokers.begin()
    for chance in range(200):
        brokers.produce(chance)
        brokers.give_id(chance)
        brokers.connect(chance)
        brokers.serve(chance)
        brokers.commit(chance)
        brokers.answer(chance)
    brokers.calm_down(Random(1))
    assert all(isinstance(found, Acknowledgement) for found in world.outcomes.values())
    check(brokers, is_all_kept=True)
    assert sum(len(log.entries) for log in brokers.logs) == world.accumulator.opened_count > 100

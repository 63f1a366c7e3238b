"""A partition that is placed here is served, cannot be, is being opened, or goes: never two."""

import asyncio
from collections.abc import Callable

import pytest

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.replicas.lives import ReplicaLives
from tidelog.broker.replicas.types import Replica
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, TopicId

ERROR = TidelogError(ErrorCode.STORAGE_FAILED, tried="open it", happened="the disk says no")
OTHER = TidelogError(ErrorCode.UNAVAILABLE, tried="use it", happened="it is being opened")


class NoDirectory(LogDirectory):
    """Nothing is asked of it here."""

    def __init__(self) -> None:
        self.name = "nowhere"


def key_of(number: int) -> PartitionKey:
    return PartitionKey(TopicId(b"t" * 16), PartitionId(number))


KEY = key_of(0)


def replica(number: int = 0) -> Replica:
    return Replica(
        log=PartitionLog(key_of(number), LeaderEpoch(0)),
        settings=TopicSettings(),
        topic_name="t",
        directory=NoDirectory(),
    )


def test_one_that_has_stopped_is_not_served_while_it_is_opened_again() -> None:
    lives, stopped = ReplicaLives(), replica()
    lives.serve(stopped)
    lives.begin_opening(KEY, OTHER)
    assert lives.served(KEY) is None
    assert lives.error_of(KEY) is OTHER
    assert lives.is_busy(KEY)
    lives.serve(replica())
    assert lives.served(KEY) is not stopped
    assert lives.error_of(KEY) is None
    assert not lives.is_busy(KEY)


def test_one_whose_files_are_being_opened_is_gone_once_these_are() -> None:
    lives = ReplicaLives()
    lives.begin_opening(KEY, OTHER)
    assert lives.let_go(KEY) is None
    assert lives.is_busy(KEY), "somebody is at its files still"
    assert lives.error_of(KEY) is None, "it is not placed here any more"
    assert not lives.is_known(KEY), "what comes back under its name has no records of before"
    lives.be_gone(KEY)
    assert not lives.is_busy(KEY)


def test_one_that_cannot_be_used_leaves_nothing_behind() -> None:
    lives = ReplicaLives()
    lives.be_unusable(KEY, ERROR)
    assert list(lives.errors()) == [(KEY, ERROR)]
    assert lives.is_known(KEY), "its files may be there"
    assert lives.let_go(KEY) is None
    assert not lives.is_busy(KEY)
    assert list(lives.errors()) == []


def test_the_last_that_came_to_be_served_is_looked_at_last() -> None:
    lives, first, second = ReplicaLives(), replica(0), replica(1)
    lives.serve(first)
    lives.serve(second)
    lives.serve(first)
    assert list(lives) == [first, second], "it was served all the time"
    lives.begin_opening(KEY, OTHER)
    lives.serve(first)
    assert list(lives) == [second, first]


@pytest.mark.parametrize(
    "step",
    [
        lambda lives: lives.be_unusable(KEY, ERROR),
        lambda lives: lives.be_gone(KEY),
    ],
)
def test_one_that_is_served_is_not_lost_by_the_way(step: Callable[[ReplicaLives], None]) -> None:
    lives = ReplicaLives()
    lives.serve(replica())
    with pytest.raises(AssertionError, match="served here"):
        step(lives)


@pytest.mark.parametrize(
    "step",
    [
        lambda lives: lives.begin_opening(KEY, OTHER),
        lambda lives: lives.take_over(replica()),
        lambda lives: lives.set_aside(KEY),
    ],
)
def test_files_that_go_are_neither_opened_nor_served(step: Callable[[ReplicaLives], None]) -> None:
    lives, served = ReplicaLives(), replica()
    lives.serve(served)
    assert lives.let_go(KEY) is served
    with pytest.raises(AssertionError):
        step(lives)


def test_one_that_stops_is_heard_of_until_it_is_in_order_or_gone() -> None:
    async def main() -> None:
        lives, first, second = ReplicaLives(), replica(0), replica(1)
        waiting = asyncio.get_running_loop().create_task(lives.wait_stopped())
        lives.serve(first)
        lives.serve(second)
        await asyncio.sleep(0)
        assert not waiting.done(), "both are in order"
        first.log.stop(ERROR)
        lives.note_stopped(KEY)
        await waiting
        assert lives.stopped() == [first]
        lives.begin_opening(KEY, OTHER)
        assert lives.stopped() == [], "somebody is at it"
        waiting = asyncio.get_running_loop().create_task(lives.wait_stopped())
        await asyncio.sleep(0)
        assert not waiting.done()
        lives.serve(first)
        await waiting
        assert lives.stopped() == [first], "it could not be read again"
        lives.let_go(KEY)
        assert lives.stopped() == []

    asyncio.run(main())


def test_one_that_stops_after_it_was_let_go_is_nobodys_any_more() -> None:
    lives = ReplicaLives()
    lives.serve(replica())
    lives.let_go(KEY)
    lives.note_stopped(KEY)
    assert lives.stopped() == []

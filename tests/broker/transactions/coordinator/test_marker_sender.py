"""Markers on their way to leaders: each partition is told of once, whatever happens."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tests.broker.support.hand_log import turns
from tests.broker.support.transaction_glue import (
    AT_NOBODY,
    AT_OTHER,
    AT_OTHER_TOO,
    AT_OWN,
    OTHER,
    OWN,
    REFUSED,
    LeadersByHand,
    image,
)
from tests.broker.transactions.support.house import identity
from tidelog.broker.transactions.coordinator.marker_sender import (
    AGAIN_MS,
    FIRST_MS,
    WAITING_MAX,
    MarkerSender,
    Results,
)
from tidelog.broker.transactions.marking import MARKERS_PER_CALL_MAX
from tidelog.broker.transactions.state.messages import SendMarkers
from tidelog.broker.transactions.state.states import Decision
from tidelog.chaos.sim import World
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LeaderEpoch, PartitionId, PartitionKey, TopicId

ALL = (AT_OWN, AT_OTHER, AT_OTHER_TOO, AT_NOBODY)
Told = dict[int, list[tuple[PartitionKey, ErrorCode | None]]]


class Sending:
    """A sender, its leaders, and what was told of each sending."""

    def __init__(self) -> None:
        self.leaders = LeadersByHand()
        self.sender = MarkerSender(image, self.leaders, self.leaders, broker_id=OWN)
        self.told: Told = {}

    def send(self, send_id: int, *keys: PartitionKey, attempt: int = 1) -> None:
        """Markers of the transaction with this number."""

        def on_answered(results: Results) -> None:
            self.told.setdefault(send_id, []).extend(
                (key, None if error is None else error.code) for key, error in results
            )

        self.sender.send(
            SendMarkers(
                send_id=send_id,
                transactional_id=f"t{send_id}",
                identity=identity(send_id, 1),
                decision=Decision.COMMIT,
                keys=keys,
                coordinator_epoch=LeaderEpoch(3),
                attempt=attempt,
            ),
            on_answered,
        )


def sending(work: Callable[[Sending], Coroutine[None, None, None]]) -> None:
    """Run the work while a sender runs, in virtual time."""
    world = World(1)

    async def live() -> None:
        made = Sending()
        async with TaskScope() as scope:
            scope.start(made.sender.run(), name="sender")
            await work(made)
            scope.cancel()

    try:
        world.run(live())
    finally:
        world.close()


def test_each_partition_is_told_of_once_and_as_its_leader_said() -> None:
    async def work(made: Sending) -> None:
        made.leaders.answers[AT_OTHER] = REFUSED
        made.send(1, *ALL)
        await turns()
        assert sorted(made.told[1]) == [
            (AT_OWN, None),
            (AT_OTHER, ErrorCode.NOT_LEADER),
            (AT_OTHER_TOO, None),
            (AT_NOBODY, ErrorCode.NOT_LEADER),
        ]
        assert [each.coordinator_epoch for each in made.leaders.sent(AT_OWN)] == [3]

    sending(work)


def test_a_call_that_fails_or_leaves_one_out_is_told_of_for_every_partition() -> None:
    async def work(made: Sending) -> None:
        made.leaders.failure = TidelogError(ErrorCode.UNAVAILABLE, tried="call", happened="gone")
        made.send(1, AT_OTHER, AT_OTHER_TOO)
        await turns()
        assert made.told[1] == [
            (AT_OTHER, ErrorCode.UNAVAILABLE),
            (AT_OTHER_TOO, ErrorCode.UNAVAILABLE),
        ]
        made.leaders.failure, made.leaders.is_short = None, True
        made.send(2, AT_OTHER, AT_OTHER_TOO)
        await turns()
        assert [key for key, _ in made.told[2]] == [AT_OTHER, AT_OTHER_TOO]
        assert None not in [code for _, code in made.told[2]], "nobody has said that it is there"

    sending(work)


def test_a_leader_that_never_answers_is_given_up_and_its_late_word_counts_for_nothing() -> None:
    async def work(made: Sending) -> None:
        late = made.leaders.hang(AT_OTHER)
        own = made.leaders.hang(AT_OWN)
        made.send(1, AT_OTHER, AT_OWN)
        await asyncio.sleep(FIRST_MS / 1000 + 0.1)
        assert sorted(made.told[1]) == [
            (AT_OWN, ErrorCode.DEADLINE_EXCEEDED),
            (AT_OTHER, ErrorCode.DEADLINE_EXCEEDED),
        ]
        late.set_result(None)
        own.set_result(None)
        await turns()
        assert len(made.told[1]) == 2

    sending(work)


def test_what_goes_to_one_broker_goes_in_one_call() -> None:
    async def work(made: Sending) -> None:
        for number in range(1, 6):
            made.send(number, AT_OTHER, AT_OTHER_TOO)
        await turns()
        assert [(broker, len(markers)) for broker, markers in made.leaders.calls] == [(OTHER, 10)]
        assert all(
            made.told[number] == [(AT_OTHER, None), (AT_OTHER_TOO, None)] for number in (1, 5)
        )

    sending(work)


def test_partitions_that_cannot_commit_do_not_hold_up_first_attempts() -> None:
    async def work(made: Sending) -> None:
        stuck = made.leaders.hang(AT_OTHER)
        for number in range(1, 30):
            made.send(number, AT_OTHER, attempt=2)
            await turns()
        made.send(100, AT_OTHER_TOO)
        await turns()
        assert made.told[100] == [(AT_OTHER_TOO, None)]
        assert 1 not in made.told
        # Nor for ever: what could not be called meanwhile is told of as well.
        await asyncio.sleep(10 * AGAIN_MS / 1000)
        assert all(len(made.told[number]) == 1 for number in range(1, 30))
        stuck.cancel()

    sending(work)


@pytest.mark.slow
def test_what_is_too_much_for_a_lane_is_refused_at_once_and_the_rest_is_sent() -> None:
    async def work(made: Sending) -> None:
        made.send(1, *[AT_OTHER] * (WAITING_MAX + 3))
        assert [code for _, code in made.told[1]] == [ErrorCode.RESOURCE_EXHAUSTED] * 3
        while len(made.told[1]) < WAITING_MAX + 3:
            await turns()
        assert len(made.leaders.calls) == WAITING_MAX // MARKERS_PER_CALL_MAX
        assert all(code is None for _, code in made.told[1][3:])

    sending(work)


def test_a_partition_of_a_topic_that_is_gone_is_told_of() -> None:
    async def work(made: Sending) -> None:
        gone = PartitionKey(TopicId(b"g" * 16), PartitionId(0))
        made.send(1, gone, PartitionKey(AT_OWN.topic_id, PartitionId(99)))
        assert [code for _, code in made.told[1]] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2

    sending(work)

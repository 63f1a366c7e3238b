"""How many transactions are prepared at other coordinators: for limits that hold in the cluster.

Owns the round: every few seconds each broker that leads a partition of `__transactions` is asked,
and every coordinator here is told the sum of all others. What a broker said last counts until it
says something else, or leads none any more. It must never hold up a coordinator: the limits are as
old as a round, and may be passed by what begins within one.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from tidelog.broker.transactions.coordinator.coordinator import TransactionCoordinator
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId

ROUND_MS: Final = 5_000
ASK_MS: Final = 2_000
"""Longest wait for one broker."""
ASKED_AT_ONCE: Final = 8

Counts = Mapping[str, int]
"""By principal."""


class PreparedCalls(Protocol):
    """The way to the coordinators on other brokers."""

    async def count_prepared(self, broker_id: BrokerId, *, timeout_ms: int) -> Counts:
        """What is prepared at the broker's coordinators."""
        ...


class LedCoordinators(Protocol):
    """Those of this broker."""

    def led(self) -> Iterable[TransactionCoordinator]:
        """Of the partitions that it leads."""
        ...


class PreparedElsewhereKeeper:
    """One a broker. `run()` is its task."""

    def __init__(
        self,
        own: LedCoordinators,
        image: Callable[[], Image],
        calls: PreparedCalls,
        clock: Clock,
        *,
        broker_id: BrokerId,
    ) -> None:
        self._own = own
        self._image = image
        self._calls = calls
        self._clock = clock
        self._broker_id = broker_id
        self._others: dict[BrokerId, Counts] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(ROUND_MS)
            if any(True for _ in self._own.led()):
                await self.look()

    async def look(self) -> None:
        """One round."""
        leaders = self._leaders()
        self._others = {each: self._others.get(each, {}) for each in leaders}
        turns = asyncio.Semaphore(ASKED_AT_ONCE)
        async with TaskScope() as scope:
            for broker_id in leaders:
                scope.start(self._ask(broker_id, turns), name="count what is prepared")
        for coordinator in self._own.led():
            others = [each for each in self._own.led() if each is not coordinator]
            counts = [*self._others.values(), *(each.prepared() for each in others)]
            coordinator.hear_prepared(_sum(counts))

    def _leaders(self) -> list[BrokerId]:
        """The other brokers that lead a partition, in ascending order."""
        topic = TRANSACTIONS.topic_in(self._image())
        partitions = () if topic is None else topic.partitions
        leaders = dict.fromkeys(each.leader_id for each in partitions)
        return sorted(each for each in leaders if each not in (NO_LEADER, self._broker_id))

    async def _ask(self, broker_id: BrokerId, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                answer = await self._calls.count_prepared(broker_id, timeout_ms=ASK_MS)
            except TidelogError:
                # What it said last goes on counting: its transactions have not gone with the call.
                return
            self._others[broker_id] = answer


def prepared_at(coordinators: Iterable[TransactionCoordinator]) -> dict[str, int]:
    """What is prepared at these, by principal."""
    return _sum(each.prepared() for each in coordinators)


def _sum(counts: Iterable[Counts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for principal, count in each.items():
            total[principal] = total.get(principal, 0) + count
    return dict(sorted(total.items()))

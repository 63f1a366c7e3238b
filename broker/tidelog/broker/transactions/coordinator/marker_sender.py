"""Brings markers to the leaders of their partitions, and tells what became of each, once.

Owns the lanes: two for each broker that leads, one for first attempts and one for repetitions, so
that a partition whose leader cannot commit does not hold up the others for long. What waits for a
broker goes in one call. It must never answer for a partition twice, nor forget one: whatever
happens to a call, its partitions are told of. It must never judge an answer: the core does.

    SendMarkers ─▶ leader of each partition, by the image ─▶ lane ─▶ call ─▶ on_answered
                       └─ nobody leads it ─────────────────────────────────▶ on_answered
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from tidelog.broker.transactions.marking import (
    MARKERS_PER_CALL_MAX,
    MarkerWriting,
    PartitionMarker,
)
from tidelog.broker.transactions.state.messages import SendMarkers
from tidelog.metadata.image.image import NO_LEADER, Image
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey

FIRST_MS: Final = 2_000
"""How long a first attempt may take; what is not answered by then is sent again."""
AGAIN_MS: Final = 10_000
"""How long a repetition may take."""
CALLS_MAX: Final = 4
"""Calls to one broker that are under way in one lane."""
OWN_MAX: Final = 1_000
"""Markers that are being written in partitions that this broker leads, in one lane."""
WAITING_MAX: Final = 100_000
"""Markers that wait in one lane: more are refused, and sent again later."""

Results = tuple[tuple[PartitionKey, TidelogError | None], ...]
"""None: the marker is committed there."""
OnAnswered = Callable[[Results], None]


class MarkerCalls(Protocol):
    """The way to the leaders on other brokers."""

    async def write_markers(
        self, broker_id: BrokerId, markers: Sequence[PartitionMarker], *, timeout_ms: int
    ) -> Sequence[TidelogError | None]:
        """What became of each, in their order; at most `MARKERS_PER_CALL_MAX`."""
        ...


class _Order(msgspec.Struct, frozen=True):
    """One marker for one partition, and who waits for it."""

    marker: PartitionMarker
    sending: int
    """Those with one number came with one `SendMarkers`."""
    on_answered: OnAnswered


class MarkerSender:
    """One a broker, for all of its coordinators. `run()` is its task."""

    def __init__(
        self,
        image: Callable[[], Image],
        own: MarkerWriting,
        calls: MarkerCalls,
        *,
        broker_id: BrokerId,
    ) -> None:
        self._image = image
        self._own = own
        self._calls = calls
        self._broker_id = broker_id
        self._lanes: dict[tuple[BrokerId, bool], _Lane] = {}
        self._sendings = 0
        self._new: deque[_Lane] = deque()
        self._news = asyncio.Event()

    def send(self, sent: SendMarkers, on_answered: OnAnswered) -> None:
        """Of each partition `on_answered` tells once, perhaps of some before this returns."""
        image, leaderless = self._image(), []
        self._sendings += 1
        for key in sent.keys:
            leader = _leader_of(image, key)
            order = _Order(_marker_of(sent, key), self._sendings, on_answered)
            if isinstance(leader, TidelogError):
                leaderless.append((key, leader))
            elif not self._lane(leader, is_first=sent.attempt == 1).take(order):
                leaderless.append((key, _too_many(leader)))
        if leaderless:
            on_answered(tuple(leaderless))

    def _lane(self, leader: BrokerId, *, is_first: bool) -> "_Lane":
        lane = self._lanes.get((leader, is_first))
        if lane is None:
            is_own = leader == self._broker_id
            write = self._write_own if is_own else self._write_there
            timeout_ms = FIRST_MS if is_first else AGAIN_MS
            lane = _Lane(leader, write, timeout_ms, is_own=is_own)
            self._lanes[leader, is_first] = lane
            self._new.append(lane)
            self._news.set()
        return lane

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._new:
                    lane = self._new.popleft()
                    scope.start(lane.run(), name=f"markers for broker {lane.leader}")

    async def _write_own(
        self, leader: BrokerId, markers: Sequence[PartitionMarker], timeout_ms: int
    ) -> Sequence[TidelogError | None]:
        del leader
        (marker,) = markers
        return [await self._own.write(marker, timeout_ms=timeout_ms)]

    async def _write_there(
        self, leader: BrokerId, markers: Sequence[PartitionMarker], timeout_ms: int
    ) -> Sequence[TidelogError | None]:
        return await self._calls.write_markers(leader, markers, timeout_ms=timeout_ms)


class _Lane:
    """What goes to one broker, in the order in which it came."""

    def __init__(self, leader: BrokerId, write: "_Write", timeout_ms: int, *, is_own: bool) -> None:
        self.leader: Final = leader
        self._write = write
        self._timeout_ms = timeout_ms
        # Of its own partitions each is answered as soon as it is there.
        self._orders_a_call = 1 if is_own else MARKERS_PER_CALL_MAX
        self._calls_max = OWN_MAX if is_own else CALLS_MAX
        self._waiting: deque[_Order] = deque()
        self._under_way = 0
        self._news = asyncio.Event()

    def take(self, order: _Order) -> bool:
        """Whether there is room for it."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(order)
        self._news.set()
        return True

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting and self._under_way < self._calls_max:
                    count = min(len(self._waiting), self._orders_a_call)
                    orders = [self._waiting.popleft() for _ in range(count)]
                    self._under_way += 1
                    scope.start(self._call(orders), name=f"write markers at {self.leader}")

    async def _call(self, orders: Sequence[_Order]) -> None:
        try:
            results = await self._outcomes([each.marker for each in orders])
        finally:
            self._under_way -= 1
            self._news.set()
        by_sending: dict[int, list[tuple[PartitionKey, TidelogError | None]]] = {}
        for order, result in zip(orders, results, strict=True):
            by_sending.setdefault(order.sending, []).append((order.marker.key, result))
        told = {each.sending: each.on_answered for each in orders}
        for sending, answered in by_sending.items():
            told[sending](tuple(answered))

    async def _outcomes(self, markers: Sequence[PartitionMarker]) -> Sequence[TidelogError | None]:
        """One for each marker, whatever becomes of the call."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                results = await self._write(self.leader, markers, self._timeout_ms)
        except TimeoutError:
            return [self._unanswered(f"no answer within {self._timeout_ms} ms")] * len(markers)
        except TidelogError as error:
            return [error] * len(markers)
        if len(results) != len(markers):
            told = f"it answered of {len(results)} markers, {len(markers)} were sent"
            return [self._unanswered(told)] * len(markers)
        return results

    def _unanswered(self, happened: str) -> TidelogError:
        return TidelogError(
            ErrorCode.DEADLINE_EXCEEDED,
            tried=f"have broker {self.leader} write markers",
            happened=happened,
        )


_Write = Callable[
    [BrokerId, Sequence[PartitionMarker], int], Awaitable[Sequence[TidelogError | None]]
]


def _marker_of(sent: SendMarkers, key: PartitionKey) -> PartitionMarker:
    return PartitionMarker(
        key=key,
        identity=sent.identity,
        decision=sent.decision,
        coordinator_epoch=sent.coordinator_epoch,
        transaction_version=sent.transaction_version,
    )


def _leader_of(image: Image, key: PartitionKey) -> BrokerId | TidelogError:
    topic = image.topics.get(key.topic_id)
    if topic is None or key.partition >= len(topic.partitions):
        return _leaderless(image, key, ErrorCode.UNKNOWN_TOPIC_ID, "there is no such partition")
    leader_id = topic.partitions[key.partition].leader_id
    if leader_id == NO_LEADER:
        return _leaderless(image, key, ErrorCode.NOT_LEADER, "nobody leads it at the moment")
    return leader_id


def _leaderless(image: Image, key: PartitionKey, code: ErrorCode, happened: str) -> TidelogError:
    name = image.name_partition(key.topic_id, key.partition)
    return TidelogError(code, tried=f"find who leads {name}", happened=happened)


def _too_many(leader: BrokerId) -> TidelogError:
    return TidelogError(
        ErrorCode.RESOURCE_EXHAUSTED,
        tried=f"send a marker to broker {leader}",
        happened=f"{WAITING_MAX:,} wait for it already",
    )

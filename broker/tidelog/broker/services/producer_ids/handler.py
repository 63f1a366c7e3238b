"""Hands out producer ids: each one once, to one producer.

Owns the blocks of ids that the controller gave this broker. They are fetched ahead, so that a
producer waits for the controller only if it is the first, or if many come at once. One task owns
them: a handler asks and waits, and what is given to a caller that went away is never used. It must
never give an id that is not from a block of its own, nor one twice. Not on a record's walk: this
comes before the first one.

    asked ──► ids left? ──► given
                 └─ few or none ──► a block is fetched ──► those who wait are given, or told why not
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import msgspec

from tidelog.broker.log.producer_state import WINDOW_BATCHES
from tidelog.broker.shared.errors import fresh
from tidelog.metadata_quorum.shared.forwarding import left_ms
from tidelog.ports import Clock, RequestContext, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

IDS_LEFT_MIN: Final = 250
"""With fewer the next block is fetched: a quarter of the controller's blocks."""
WAITING_MAX: Final = 10_000
"""Callers that wait for a block."""
FETCH_MS: Final = 5_000
"""How long a controller is looked for before those who wait are told that there is none."""
ANSWER_MS: Final = 200
"""Kept of a caller's deadline for the answer's way, at most."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that are this broker's own, one after the other."""

    first_producer_id: int
    count: int


class ProducerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a new producer is given."""

    producer_id: int
    producer_epoch: int = 0
    batches_in_flight_max: int = WINDOW_BATCHES


class BlockSource(Protocol):
    """The way to the active controller."""

    async def fetch(self, timeout_ms: int) -> Block:
        """A block that nobody else has; a typed error if none is to be had in that time."""
        ...


class ProducerIds:
    """`run()` is the owning task."""

    def __init__(self, source: BlockSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._ids: deque[int] = deque()
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._fetched: Block | TidelogError | None = None
        self._is_fetching = False
        self._has_failed = False
        """The last fetch did, and nobody has asked since."""
        self._news = asyncio.Event()

    async def allocate(self, context: RequestContext) -> ProducerIdentity:
        """An identity that nobody had before; waits for the controller as long as the caller."""
        if len(self._waiting) >= WAITING_MAX:
            raise TidelogError(
                ErrorCode.RESOURCE_EXHAUSTED,
                tried="allocate a producer id",
                happened=f"{WAITING_MAX} callers wait for the controller already",
            )
        given: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        self._has_failed = False
        self._news.set()
        wait_ms = left_ms(context, self._clock)
        wait_ms -= min(wait_ms // 10, ANSWER_MS)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return ProducerIdentity(producer_id=await given)
        except TimeoutError:
            raise TidelogError(
                ErrorCode.UNAVAILABLE,
                tried="allocate a producer id",
                happened=f"the controller gave this broker no ids within {wait_ms} ms",
                hint="See `tidelog quorum describe`: a majority of the voters has to be alive.",
            ) from None

    async def run(self) -> None:
        """Until cancelled."""
        async with TaskScope() as scope:
            while True:
                await self._news.wait()
                self._news.clear()
                self._take_in()
                self._serve()
                is_short = 0 < len(self._ids) < IDS_LEFT_MIN
                is_wanted = is_short or self._waiting
                if is_wanted and not self._is_fetching and not self._has_failed:
                    self._is_fetching = True
                    scope.start(self._fetch(), name="fetch producer ids")

    async def _fetch(self) -> None:
        try:
            self._fetched = await self._source.fetch(FETCH_MS)
        except TidelogError as error:
            self._fetched = error
        self._news.set()

    def _take_in(self) -> None:
        fetched, self._fetched = self._fetched, None
        if fetched is None:
            return
        self._is_fetching = False
        self._has_failed = not isinstance(fetched, Block)
        if isinstance(fetched, Block):
            assert fetched.count > 0, f"a block without ids: {fetched}"
            first = fetched.first_producer_id
            self._ids.extend(range(first, first + fetched.count))
            return
        self._serve()  # It was fetched ahead: only those are told for whom there is none left.
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(fresh(fetched))

    def _serve(self) -> None:
        while self._waiting and self._ids:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(self._ids.popleft())

"""The SDK's own asyncio producer and consumer, as programs of the suite use them."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, cast

from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.client import (
    Folded,
    PreparedToken,
    Read,
    Records,
    Standing,
)
from tidelog.chaos.sim.world.world import World
from tidelog.client import OffsetAndMetadata, TopicPartition
from tidelog.client.aio import AsyncConsumer, AsyncProducer
from tidelog.client.engine.transaction.phases import (
    Fenced,
    MustAbort,
    New,
    Open,
    Prepared,
    Ready,
    Undecided,
)
from tidelog.client.types.transaction_token import TransactionToken
from tidelog.wire.errors import ErrorCode, TidelogError

POLL_MS: Final = 400
READ_TRIES_MAX: Final = 20
_STANDINGS: Final[dict[type, Standing]] = {
    New: Standing.NEW,
    Ready: Standing.READY,
    Open: Standing.OPEN,
    MustAbort: Standing.MUST_ABORT,
    Undecided: Standing.UNDECIDED,
    Fenced: Standing.FENCED,
    Prepared: Standing.PREPARED,
}


def place_of(partition: str) -> TopicPartition:
    """Topic and number of a partition of the plan."""
    topic, _, number = partition.rpartition("-")
    return TopicPartition(topic, int(number))


async def _offset_of(sent: Awaitable[Any]) -> int:
    return cast("int", (await sent).offset)


class SdkClient:
    """Implements `TransactionalClient`."""

    def __init__(
        self,
        world: World,
        bootstrap: list[str],
        transactional_id: str | None,
        *,
        timeout_ms: int,
        call_ms: int,
        user_ms: int,
        group: str = "",
        source: str = "",
    ) -> None:
        self._world = world
        self._user_s = user_ms / 1_000
        common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "request_timeout_ms": call_ms,
        }
        self._producer: Any = AsyncProducer(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            **common,
        )
        self._consumer: Any = AsyncConsumer(
            group_id=group or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **common,
        )
        self._assigned: list[TopicPartition] = []
        self._source = source
        """What its group reads."""

    @property
    def standing(self) -> Standing:
        """Where it stands."""
        return _STANDINGS.get(type(self._producer._phase), Standing.BUSY)

    async def initialize(self) -> None:
        """Take the transactional id over."""
        await self._producer.init_transactions(self._user_s)

    async def begin(self) -> None:
        """A transaction begins."""
        await self._producer.begin_transaction(self._user_s)

    async def send(self, partition: str, value: str) -> "asyncio.Future[int]":
        """A record leaves; its offset, once it is stored. Each has a key of its own, so that no
        compaction takes any that is committed."""
        at, data = place_of(partition), value.encode()
        sent = await self._producer.send(at.topic, data, key=data, partition=at.partition)
        return asyncio.get_running_loop().create_task(_offset_of(sent), name="send")

    async def send_offsets(self, group: str, folded: Folded) -> None:
        """The offsets of a group are part of the transaction."""
        at = OffsetAndMetadata(folded.position, str(folded.state))
        await self._producer.send_offsets_to_transaction(
            {place_of(self._source): at}, group, self._user_s
        )

    async def commit(self) -> None:
        """All of it counts."""
        await self._producer.commit_transaction(self._user_s)

    async def abort(self) -> None:
        """None of it counts."""
        await self._producer.abort_transaction(self._user_s)

    async def prepare(self) -> PreparedToken:
        """Whoever has the token decides."""
        return PreparedToken(await self._producer.prepare_transaction(self._user_s))

    async def decide(self, token: PreparedToken, *, is_commit: bool) -> None:
        """Decides a prepared transaction, by the token as it is stored."""
        text = str(cast("TransactionToken", token.token))
        decide = self._producer.complete if is_commit else self._producer.abandon
        await decide(text, self._user_s)

    async def read(self, positions: Mapping[str, int], *, records_max: int, to_end: bool) -> Read:
        """Polls each partition from its position."""
        places = {place_of(name): name for name in positions}
        self._assign(list(places))
        ends: dict[str, int] = {}
        if to_end:
            told = await self._consumer.end_offsets(list(places))
            ends = {places[at]: max(end, positions[places[at]]) for at, end in told.items()}
        for at, name in places.items():
            self._consumer.seek(at, positions[name])
        records: dict[str, Records] = {name: [] for name in positions}
        after = dict(positions)
        for _ in range(READ_TRIES_MAX):
            polled = await self._consumer.getmany(
                timeout_ms=POLL_MS, max_records=None if to_end else records_max
            )
            for at, found in polled.items():
                name = places[at]
                end = ends.get(name)
                records[name] += [
                    (record.offset, record.value.decode())
                    for record in found
                    if end is None or record.offset < end
                ]
            for at, name in places.items():
                after[name] = await self._consumer.position(at)
            if all(after[name] >= end for name, end in ends.items()):
                # What lies behind the end is read another time.
                return Read(records, after | ends, ends)
        raise TidelogError(
            ErrorCode.DEADLINE_EXCEEDED, tried="read to the end", happened="it is not reached"
        )

    def _assign(self, places: list[TopicPartition]) -> None:
        if places != self._assigned:
            self._consumer.assign(places)
            self._assigned = places

    async def join(self, group: str) -> Folded:
        """Learns where to begin."""
        del group
        found = await self._consumer.committed(place_of(self._source), metadata=True)
        return Folded(0, 0) if found is None else Folded(found.offset, int(found.metadata))

    async def committed(self, group: str) -> Folded:
        """How far the group has come."""
        return await self.join(group)

    async def close(self) -> None:
        """Nothing more is asked of it."""
        await self._consumer.stop()
        await self._producer.stop()
        await sleep_ns(self._world.loop, 0)

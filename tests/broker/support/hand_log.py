"""A coordinator's log of which a test says when appends end."""

import asyncio
from collections.abc import Sequence

from tidelog.broker.coordination.log import (
    CoordinatorLog,
    KeyValue,
    Producer,
    Take,
    TakeMarker,
)
from tidelog.broker.directory.core.messages import Appended
from tidelog.wire.errors import ErrorCode, TidelogError


class HandLog(CoordinatorLog):
    """In leader epoch 1, unless it is said otherwise; empty."""

    def __init__(self, leader_epoch: int = 1) -> None:
        self.epoch = leader_epoch
        self.loads = 0
        self.appends: list[list[bytes]] = []
        """The keys of each."""
        self.under_way: list[asyncio.Future[Appended]] = []
        self.producers: list[Producer | None] = []
        """Of each append: whose transaction it is part of."""
        self.verifying: list[asyncio.Future[None]] = []

    async def load(self, take: Take, take_marker: TakeMarker | None = None) -> int:
        self.loads += 1
        return 0

    def append(
        self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None
    ) -> "asyncio.Future[Appended]":
        self.appends.append([key for key, _ in records])
        self.producers.append(producer)
        self.under_way.append(asyncio.get_running_loop().create_future())
        return self.under_way[-1]

    async def verify(self, transactional_id: str, producer: Producer, timeout_ms: int) -> None:
        self.verifying.append(asyncio.get_running_loop().create_future())
        await self.verifying[-1]

    async def refuse(self, number: int, error: TidelogError) -> None:
        """The append with this number, from 0, is not in the log."""
        self.under_way[number].set_exception(error)
        await turns()

    def check(self, appended: Appended) -> None:
        if appended.leader_epoch != self.epoch:
            raise TidelogError(ErrorCode.NOT_LEADER, tried="append", happened="another epoch")

    async def end(self, number: int, leader_epoch: int | None = None) -> None:
        """Of the append with this number, from 0."""
        epoch = self.epoch if leader_epoch is None else leader_epoch
        self.under_way[number].set_result(
            Appended(
                token=0, base_offset=0, append_time_ms=0, log_start_offset=0, leader_epoch=epoch
            )
        )
        await turns()


async def turns() -> None:
    """Whatever can go on has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)

"""Decides prepared transactions from a process of its own, as the other half of a commit does."""

import asyncio
from typing import Final

from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import sleep_ns
from tidelog.chaos.sim.transactions.client import PreparedToken, TransactionalClient
from tidelog.chaos.sim.world.world import World
from tidelog.wire.errors import TidelogError

_MS: Final = 1_000_000
WAIT_NS: Final = (10 * _MS, 4_000 * _MS)
RETRY_NS: Final = (10 * _MS, 200 * _MS)


class Decider:
    """Takes tokens, and decides each after a while that may be longer than any timeout."""

    def __init__(self, world: World) -> None:
        self.violations: list[str] = []
        self._world = world
        self._random: SeededRandom = world.seeds.purpose("decider")
        self._tokens: asyncio.Queue[tuple[PreparedToken, bool, asyncio.Future[None]]] = (
            asyncio.Queue()
        )
        self.decided = 0
        self.waiting = 0
        self.is_calm = False
        """It decides at once."""

    def hand_over(self, token: PreparedToken, *, is_commit: bool) -> "asyncio.Future[None]":
        """Done when it is decided."""
        done: asyncio.Future[None] = self._world.loop.create_future()
        self._tokens.put_nowait((token, is_commit, done))
        self.waiting += 1
        return done

    async def run(self, client: TransactionalClient) -> None:
        """For as long as its process lives."""
        while True:
            token, is_commit, done = await self._tokens.get()
            if not self.is_calm:
                await sleep_ns(self._world.loop, self._random.between(*WAIT_NS))
            while True:
                try:
                    await client.decide(token, is_commit=is_commit)
                except TidelogError as error:
                    if not error.retriable:
                        self.violations.append(
                            f"prepared_lost: {token.token} cannot be decided any more: {error}"
                        )
                        break
                    await sleep_ns(self._world.loop, self._random.between(*RETRY_NS))
                else:
                    break
            self.decided += 1
            self.waiting -= 1
            if not done.done():
                done.set_result(None)

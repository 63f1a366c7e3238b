"""A call that any node may answer: which address is asked when; `sync.rounds` says the rules.

Owns the tasks of one such call: none outlives it. It must never send a call that changes something
to two nodes at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.client.shared.asking import (
    ADDRESS_TIMEOUT_MS,
    HEDGE_MS,
    OnFailure,
    all_failed,
    nobody_is_told,
    only_reads,
)
from tidelog.wire.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.client.aio.connections import AsyncConnections


class Round:
    """Every address once, in order, until one answers."""

    def __init__(
        self,
        connections: AsyncConnections,
        addresses: Sequence[str],
        method: str,
        data: bytes,
        timeout_ms: int,
        on_failure: OnFailure = nobody_is_told,
    ) -> None:
        assert addresses, "a round needs an address"
        self._connections = connections
        self._left = list(addresses)
        self._method = method
        self._data = data
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._ended: asyncio.Queue[str] = asyncio.Queue()
        self._asked: dict[str, asyncio.Task[bytes]] = {}
        """Without an answer so far."""
        self._errors: list[tuple[str, TidelogError]] = []
        self._on_failure = on_failure

    async def answer(self) -> bytes:
        """The first one, or an error that names each address."""
        try:
            while True:
                if not self._asked and self._left and not self._is_late:
                    self._ask_next()
                if not self._asked:
                    raise all_failed(self._errors)
                address = await self._wait()
                if address is None:
                    self._ask_next()
                    continue
                try:
                    return self._asked.pop(address).result()
                except TidelogError as error:
                    self._errors.append((address, error))
                    self._on_failure(error)
                if self._left and not self._is_late:
                    self._ask_next()
        finally:
            for task in self._asked.values():
                task.cancel()
            for task in self._asked.values():
                with contextlib.suppress(asyncio.CancelledError, TidelogError):
                    await task

    @property
    def _is_late(self) -> bool:
        return bool(self._errors) and time.monotonic() >= self._deadline

    async def _wait(self) -> str | None:
        """Whose call has ended; None: it is time to ask somebody beside."""
        latest = next(reversed(self._asked))
        is_hedged = only_reads(self._method) and not self._connections.has_answered(latest)
        try:
            async with asyncio.timeout(HEDGE_MS / 1000 if self._left and is_hedged else None):
                return await self._ended.get()
        except TimeoutError:
            return None

    def _ask_next(self) -> None:
        address = self._left.pop(0)
        left_ms = max(1, int((self._deadline - time.monotonic()) * 1000))
        # The last address may use all that is left: nobody waits behind it.
        timeout_ms = min(left_ms, ADDRESS_TIMEOUT_MS) if self._left else left_ms
        call = self._connections.call(address, self._method, self._data, timeout_ms)
        task = asyncio.get_running_loop().create_task(call, name=f"ask {address}")
        self._asked[address] = task
        task.add_done_callback(lambda _: self._ended.put_nowait(address))

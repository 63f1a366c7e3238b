"""Unary calls at a fixed concurrency: the one client by which quorums of any make are measured.

Owns the clock of such a measurement. It must never know whose bytes it sends: peers differ in
method and message only, so that a ratio compares servers and not clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import msgspec

from bench.table import percentile

CALL_SECONDS_MAX = 30.0


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    calls: int
    concurrency: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds


async def _caller(
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes],
    make: Callable[[int], bytes],
    numbers: list[int],
) -> list[float]:
    took: list[float] = []
    while numbers:
        message = make(numbers.pop())
        begin = time.perf_counter()
        await method(message, timeout=CALL_SECONDS_MAX)
        took.append(time.perf_counter() - begin)
    return took


async def _run(
    address: str, method: str, make: Callable[[int], bytes], calls: int, concurrency: int
) -> Calls:
    async with grpc.aio.insecure_channel(address) as channel:
        function: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        await function(make(calls), timeout=CALL_SECONDS_MAX)
        numbers = list(range(calls))
        begin = time.perf_counter()
        callers = [_caller(function, make, numbers) for _ in range(concurrency)]
        took = [one for part in await asyncio.gather(*callers) for one in part]
        seconds = time.perf_counter() - begin
    assert len(took) == calls, "each call ended once"
    return Calls(
        calls=calls,
        concurrency=concurrency,
        seconds=seconds,
        p50_ms=percentile(took, 0.5) * 1_000,
        p99_ms=percentile(took, 0.99) * 1_000,
    )


def run_calls(
    address: str, method: str, make: Callable[[int], bytes], *, calls: int, concurrency: int
) -> Calls:
    """`calls` calls of `method`, `concurrency` at a time; the first one, uncounted, connects."""
    return asyncio.run(_run(address, method, make, calls, concurrency))

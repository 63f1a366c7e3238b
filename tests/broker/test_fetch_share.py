"""Long polls of one connection that come at once: each gets a share, alone it gets all."""

import asyncio

import pytest

from tidelog.broker.rpc.fetch_share import FETCH, SHARE_BYTES_MIN, with_fetch_share
from tidelog.ports import RequestContext, UnaryMethod
from tidelog.v1 import fetch_pb2

MIB = 1024 * 1024


def context(address: str) -> RequestContext:
    """From one connection."""
    return RequestContext(
        principal="anonymous", listener="client", client_id="", address=address, deadline_ns=0
    )


class Asked:
    """A handler that parks, and remembers for how many bytes it was asked."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.may_answer = asyncio.Event()
        methods = with_fetch_share(
            {FETCH: UnaryMethod(self._fetch)}, connection_bytes=16 * MIB, default_bytes=3 * MIB
        )
        method = methods[FETCH]
        assert isinstance(method, UnaryMethod)
        self.handler = method.handler

    async def _fetch(self, _: RequestContext, message: bytes) -> bytes:
        self.sizes.append(fetch_pb2.FetchRequest.FromString(message).max_bytes)
        await self.may_answer.wait()
        return b""


async def ask(asked: Asked, count: int, max_bytes: int, address: str = "a:1") -> None:
    """So many calls at once; all end."""
    asked.may_answer.clear()
    request = fetch_pb2.FetchRequest(max_bytes=max_bytes).SerializeToString()
    calls = [asyncio.ensure_future(asked.handler(context(address), request)) for _ in range(count)]
    other = asyncio.ensure_future(asked.handler(context("b:2"), request))
    await asyncio.sleep(0)
    asked.may_answer.set()
    await asyncio.gather(*calls, other)


def test_calls_of_one_connection_share_and_another_connection_gets_all() -> None:
    async def run() -> Asked:
        asked = Asked()
        await ask(asked, 4, 8 * MIB)
        return asked

    asked = asyncio.run(run())
    assert asked.sizes == [8 * MIB, 8 * MIB, 16 * MIB // 3, 4 * MIB, 8 * MIB]


def test_the_share_is_never_too_small_to_get_on_with() -> None:
    async def run() -> Asked:
        asked = Asked()
        await ask(asked, 400, 8 * MIB)
        return asked

    sizes = asyncio.run(run()).sizes[:400]
    assert min(sizes) == SHARE_BYTES_MIN
    assert sum(sizes) < 8 * 16 * MIB


def test_a_call_that_names_no_size_is_cut_as_the_default_is() -> None:
    async def run() -> Asked:
        asked = Asked()
        await ask(asked, 8, 0)
        return asked

    assert asyncio.run(run()).sizes == [0, 0, 0, 0, 0, 16 * MIB // 6, 16 * MIB // 7, 2 * MIB, 0]


def test_calls_that_are_over_or_were_cancelled_are_not_counted() -> None:
    async def run() -> Asked:
        asked = Asked()
        await ask(asked, 10, 8 * MIB)
        asked.may_answer.clear()
        request = fetch_pb2.FetchRequest(max_bytes=8 * MIB).SerializeToString()
        given_up = asyncio.ensure_future(asked.handler(context("a:1"), request))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        asked.sizes.clear()
        await ask(asked, 1, 8 * MIB)
        return asked

    assert asyncio.run(run()).sizes == [8 * MIB, 8 * MIB]

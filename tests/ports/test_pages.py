"""The Pages port over real sockets: who is answered, and who is hung up on."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tidelog.ports import Page, PageRequest
from tidelog.ports.real import pages
from tidelog.ports.real.pages import HttpPages, PageServer, parse_head
from tidelog.wire.errors import ErrorCode, TidelogError

Ask = Callable[[bytes], Coroutine[Any, Any, bytes]]


async def _echo(request: PageRequest) -> Page:
    return Page(body=f"{request.path} {request.query} {request.accept}".encode())


async def _fail(request: PageRequest) -> Page:
    raise ValueError(request.path)


_GO_ON = asyncio.Event()


async def _wait(request: PageRequest) -> Page:
    await _GO_ON.wait()
    return Page(body=b"at last")


async def _large(request: PageRequest) -> Page:
    return Page(body=bytes(16 * 1024 * 1024))


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


CALLERS_MAX = 4
PAGES = {"/echo": _echo, "/fail": _fail, "/wait": _wait, "/large": _large}


def _serve(work: Callable[[PageServer, Ask], Awaitable[None]]) -> None:
    async def main() -> None:
        server = PageServer(PAGES, callers_max=CALLERS_MAX)
        await server.start("127.0.0.1:0")

        async def ask(text: bytes) -> bytes:
            host, _, port = server.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(text)
            try:
                return await reader.read()
            finally:
                await _close(writer)

        try:
            await work(server, ask)
        finally:
            await server.stop(0)

    asyncio.run(main())


def test_a_page_is_answered_with_its_path_query_and_accept() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        answer = await ask(b"GET /echo?a=b HTTP/1.1\r\nHost: x\r\nAccept: text/x\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: %d" % len(body) in head
        assert body == b"/echo a=b text/x"

    _serve(work)


def test_a_head_request_gets_the_head_only() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        answer = await ask(b"HEAD /echo HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\n")

    _serve(work)


def test_other_paths_methods_and_things_that_are_no_http_are_told_so() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        missing = await ask(b"GET /x HTTP/1.1\r\n\r\n")
        assert b"404 Not Found" in missing
        assert b"/echo\n" in missing
        assert b"405 Method" in await ask(b"POST /echo HTTP/1.1\r\n\r\n")
        assert b"400 Bad" in await ask(b"what is this\r\n\r\n")

    _serve(work)


def test_a_page_that_fails_costs_its_caller_an_answer_and_nobody_else() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        assert b"500 Internal" in await ask(b"GET /fail HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await ask(b"GET /echo HTTP/1.1\r\n\r\n")

    _serve(work)


def test_a_head_that_is_too_long_is_hung_up_on() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        long = b"GET /echo HTTP/1.1\r\nX: " + b"y" * pages.HEAD_BYTES_MAX * 2
        with contextlib.suppress(ConnectionError):
            assert await ask(long) == b""
        assert b"200 OK" in await ask(b"GET /echo HTTP/1.1\r\n\r\n")

    _serve(work)


def test_callers_that_send_nothing_give_way_to_one_that_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        host, _, port = server.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(CALLERS_MAX)]
        await _until(lambda: len(server._tasks) == CALLERS_MAX)
        for _ in range(3):
            assert b"200 OK" in await ask(b"GET /echo HTTP/1.1\r\n\r\n")
            more = await asyncio.open_connection(host, int(port))
            await _until(lambda: len(server._tasks) == CALLERS_MAX)
            silent.append(more)
        # The first ones, and no others, have been hung up on.
        assert [reader.at_eof() for reader, _ in silent] == [True] * 3 + [False] * CALLERS_MAX
        assert server.refused_count == 3
        for _, writer in silent:
            await _close(writer)

    _serve(work)
    told = [record.getMessage() for record in caplog.records if "page_callers" in record.message]
    assert len(told) == 1
    assert "count=1" in told[0]


def test_callers_that_take_nothing_give_way_to_one_that_asks() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        host, _, port = server.address.rpartition(":")
        stuck = []
        for _ in range(CALLERS_MAX):
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
            stuck.append(writer)
        await _until(lambda: len(server._waited_for) == CALLERS_MAX)
        assert b"200 OK" in await ask(b"GET /echo HTTP/1.1\r\n\r\n")
        for writer in stuck:
            writer.transport.abort()

    _serve(work)


def test_while_pages_are_made_for_all_one_more_is_hung_up_on() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        asked = [
            asyncio.create_task(ask(b"GET /wait HTTP/1.1\r\n\r\n")) for _ in range(CALLERS_MAX)
        ]
        await _until(lambda: len(server._tasks) == CALLERS_MAX and not server._waited_for)
        with contextlib.suppress(ConnectionError):
            assert await ask(b"GET /echo HTTP/1.1\r\n\r\n") == b""
        assert server.refused_count == 1
        _GO_ON.set()
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*asked))

    _GO_ON.clear()
    _serve(work)


async def _until(found: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if found():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def test_a_stop_hangs_up_on_callers_that_say_nothing() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await server.stop(0)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await _close(writer)

    _serve(work)


@pytest.mark.parametrize("bind", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_bound_is_named(bind: str) -> None:
    with pytest.raises(TidelogError) as caught:
        asyncio.run(_bind(bind))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert bind in caught.value.tried


async def _bind(bind: str) -> None:
    server = await HttpPages().serve(bind, {})
    await server.stop(0)


def test_an_address_that_is_taken_is_told() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        with pytest.raises(TidelogError) as caught:
            await HttpPages().serve(server.address, {})
        assert "in use" in caught.value.happened

    _serve(work)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\r\n\r\n",
        b"GET /x\r\n\r\n",
        b"GET /x FTP/1\r\n\r\n",
        b"\xff\xfe a b\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"GET http://[v1.x HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_no_request(head: bytes) -> None:
    assert parse_head(head)[1] is None


def test_no_head_of_a_stranger_leaves_a_stack_or_a_caller_without_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = random.Random(7)
    parts = [
        b"GET",
        b" ",
        b"http://",
        b"[",
        b"]",
        b"//",
        b"?",
        b"#",
        b"%",
        b"\0",
        b"\xff",
        b"HTTP/1.1",
    ]
    heads = [b"GET http://[ HTTP/1.1", b"GET //[:: HTTP/1.1", b"GET http://[1]x/ HTTP/1.1"]
    heads += [
        b"GET " + b"".join(numbers.choices(parts[2:-1], k=4)) + b" HTTP/1.1" for _ in range(100)
    ]
    heads += [b"".join(numbers.choices(parts, k=6)) for _ in range(100)]

    async def work(server: PageServer, ask: Ask) -> None:
        for head in heads:
            assert (await ask(head + b"\r\n\r\n")).startswith(b"HTTP/1.1 4"), head

    _serve(work)
    assert not caplog.records


def test_a_page_that_fails_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        for _ in range(20):
            assert b"500 Internal" in await ask(b"GET /fail HTTP/1.1\r\n\r\n")

    _serve(work)
    assert len(caplog.records) == 1

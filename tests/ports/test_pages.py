"""The Pages port over real sockets: who is answered, and who is hung up on."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tidelog.ports import Page, PageRequest
from tidelog.ports.real import pages
from tidelog.ports.real.pages import HttpPages, PageServer, parse_head
from tidelog.wire.errors import ErrorCode, TidelogError

Ask = Callable[[bytes], Awaitable[bytes]]


async def _echo(request: PageRequest) -> Page:
    return Page(body=f"{request.path} {request.query} {request.accept}".encode())


async def _fail(request: PageRequest) -> Page:
    raise ValueError(request.path)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def _serve(work: Callable[[PageServer, Ask], Awaitable[None]]) -> None:
    async def main() -> None:
        server = await HttpPages().serve("127.0.0.1:0", {"/echo": _echo, "/fail": _fail})

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


def test_one_caller_too_many_is_hung_up_on_until_others_are_gone() -> None:
    async def work(server: PageServer, ask: Ask) -> None:
        host, _, port = server.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(pages.CALLERS_MAX)]
        for _ in range(200):
            if len(server._tasks) == pages.CALLERS_MAX:
                break
            await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            assert await ask(b"GET /echo HTTP/1.1\r\n\r\n") == b""
        for _, writer in silent:
            await _close(writer)
        for _ in range(10_000):
            if not server._tasks:
                break
            await asyncio.sleep(0)
        assert b"200 OK" in await ask(b"GET /echo HTTP/1.1\r\n\r\n")

    _serve(work)


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
    "head", [b"", b"\r\n\r\n", b"GET /x\r\n\r\n", b"GET /x FTP/1\r\n\r\n", b"\xff\xfe a b\r\n\r\n"]
)
def test_what_is_no_request_is_no_request(head: bytes) -> None:
    assert parse_head(head)[1] is None

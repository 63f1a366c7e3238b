"""The Pages port over asyncio's sockets: as much HTTP/1.1 as a scraper or a probe speaks.

Owns these sockets. One request a connection, GET and HEAD, no body; a caller that is slow, sends
too much, or comes while too many are served, is hung up on. It must never wait for a
caller without a deadline, nor keep anything of one that is gone.
"""

import asyncio
import logging
import os
import urllib.parse
from collections.abc import Mapping
from typing import Final

from tidelog.ports.pages import Page, PageHandler, PageRequest
from tidelog.wire.errors import ErrorCode, TidelogError

_log: Final = logging.getLogger(__name__)

CALLERS_MAX: Final = 16
"""Connections at a time; one more is closed at once."""
HEAD_BYTES_MAX: Final = 16 * 1024
READ_SECONDS: Final = 5.0
"""From the connection to the end of the request's head."""
ANSWER_SECONDS: Final = 30.0
"""For making the page and for the caller to take it, each."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class PageServer:
    """A listener at work."""

    def __init__(self, handlers: Mapping[str, PageHandler]) -> None:
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._address = ""

    @property
    def address(self) -> str:
        """`host:port` with the port that was really taken."""
        return self._address

    async def start(self, bind: str) -> None:
        """Bind and serve."""
        host, colon, port = bind.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise _cannot_bind(bind, "the address is not `host:port`")
        try:
            self._server = await asyncio.start_server(
                self._on_connection, host.strip("[]"), int(port), limit=HEAD_BYTES_MAX
            )
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            raise _cannot_bind(bind, os.strerror(number) if number else str(error)) from None
        self._address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self, grace_ms: int) -> None:
        """Accept nothing new; hang up on whoever is served still after `grace_ms`."""
        assert self._server is not None, "a server is started before it is stopped"
        self._server.close()
        end = asyncio.get_running_loop().time() + grace_ms / 1000
        for task in list(self._tasks):
            left = end - asyncio.get_running_loop().time()
            if left > 0 and not task.done():
                await asyncio.wait([task], timeout=left)
        for task in list(self._tasks):
            task.cancel()
        for task in list(self._tasks):
            await asyncio.wait([task])

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks[task] = None
        try:
            if len(self._tasks) <= CALLERS_MAX:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Gone, too slow, or not HTTP: there is nobody to tell.
            pass
        except asyncio.CancelledError:
            # The server stops: a task of asyncio's streams that ends cancelled would be reported.
            pass
        finally:
            del self._tasks[task]
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(READ_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        method, request = parse_head(head)
        if request is None:
            page = Page(status=400, body=b"this is no HTTP request\n")
        elif method not in ("GET", "HEAD"):
            page = Page(status=405, body=b"only GET and HEAD\n")
        else:
            page = await self._page(request)
        await _send(writer, page, is_head=method == "HEAD")

    async def _page(self, request: PageRequest) -> Page:
        handler = self._handlers.get(request.path)
        if handler is None:
            known = "\n".join(sorted(self._handlers))
            return Page(status=404, body=f"there is no such page; there are:\n{known}\n".encode())
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await handler(request)
        except TimeoutError:
            return Page(status=503, body=b"the page took too long\n")
        except Exception:  # noqa: BLE001
            _log.exception("the page %s failed", request.path)
            return Page(status=500, body=b"the page failed; the node's log tells why\n")


def parse_head(head: bytes) -> tuple[str, PageRequest | None]:
    """Method and what is asked for; None: it is no request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", None
    target = urllib.parse.urlsplit(words[1])
    accept = ""
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "accept":
            accept = value.strip()
    return words[0], PageRequest(path=target.path, query=target.query, accept=accept)


async def _send(writer: asyncio.StreamWriter, page: Page, *, is_head: bool) -> None:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS.get(page.status, 'Error')}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1") if is_head else head.encode("latin-1") + page.body)
    async with asyncio.timeout(ANSWER_SECONDS):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _cannot_bind(bind: str, reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"listen on {bind} (metrics.bind)",
        happened=reason,
        hint="Choose another port or address for metrics.bind, or leave it empty.",
    )


class HttpPages:
    """Makes listeners."""

    async def serve(self, bind: str, handlers: Mapping[str, PageHandler]) -> PageServer:
        """Answer GET of each path."""
        server = PageServer(handlers)
        await server.start(bind)
        return server

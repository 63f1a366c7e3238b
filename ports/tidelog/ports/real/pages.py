"""The Pages port over asyncio's sockets: as much HTTP/1.1 as a scraper or a probe speaks.

Owns these sockets. One request a connection, GET and HEAD, no body; a caller that is slow or sends
too much is hung up on. It must never wait for a caller without a deadline, nor keep anything of one
that is gone, nor let callers that send nothing, or take nothing, keep out a probe: one caller too
many displaces the one that the server has waited for longest.
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

CALLERS_MAX: Final = 64
"""Connections at a time; one more displaces another, or is closed if pages are made for all."""
HEAD_BYTES_MAX: Final = 16 * 1024
READ_SECONDS: Final = 5.0
"""From the connection to the end of the request's head."""
ANSWER_SECONDS: Final = 30.0
"""For making the page and for the caller to take it, each."""
TOLD_AGAIN_SECONDS: Final = 10.0
"""Between two lines about callers that were displaced or refused."""
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

    def __init__(
        self, handlers: Mapping[str, PageHandler], *, callers_max: int = CALLERS_MAX
    ) -> None:
        self._handlers = handlers
        self._callers_max = callers_max
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._waited_for: dict[asyncio.Task[None], None] = {}
        """Those of which the server waits for the caller, whoever waits longest first."""
        self._address = ""
        self.refused_count = 0
        """Callers that were displaced, or found no place."""
        self._told_count = 0
        self._telling: asyncio.TimerHandle | None = None
        self._failure = ""
        """What a page failed with last; the stack of a row of the same is told once."""

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
        if self._telling is not None:
            self._telling.cancel()
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
            if len(self._tasks) <= self._callers_max or self._displace():
                await self._serve(reader, writer, task)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Gone, too slow, or not HTTP: there is nobody to tell.
            pass
        except asyncio.CancelledError:
            # The server stops, or another caller came: a task of asyncio's streams that ends
            # cancelled would be reported.
            pass
        finally:
            del self._tasks[task]
            self._waited_for.pop(task, None)
            writer.transport.abort()

    def _displace(self) -> bool:
        """Make room for one more caller; False: a page is being made for each that is there."""
        self._note_refused()
        longest = next(iter(self._waited_for), None)
        if longest is None:
            return False
        # It counts until it has ended; what it holds until then is little.
        del self._waited_for[longest]
        longest.cancel()
        return True

    def _note_refused(self) -> None:
        """Count it; a line at once for the first, and one now and then for those that follow."""
        self.refused_count += 1
        if self._telling is None:
            self._tell()

    def _tell(self) -> None:
        self._telling = None
        count = self.refused_count - self._told_count
        if count:
            _log.warning(
                "page_callers_refused address=%s callers_max=%s count=%s",
                self._address,
                self._callers_max,
                count,
            )
            self._told_count = self.refused_count
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(TOLD_AGAIN_SECONDS, self._tell)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        self._waited_for[task] = None
        async with asyncio.timeout(READ_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        self._waited_for.pop(task, None)
        method, request = parse_head(head)
        if request is None:
            page = Page(status=400, body=b"this is no HTTP request\n")
        elif method not in ("GET", "HEAD"):
            page = Page(status=405, body=b"only GET and HEAD\n")
        else:
            page = await self._page(request)
        self._waited_for[task] = None
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
        except Exception as error:  # noqa: BLE001
            failure = f"{request.path} {error!r}"
            if failure != self._failure:
                # Callers may ask for a page that fails as often as they like.
                _log.exception("the page %s failed", request.path)
            self._failure = failure
            return Page(status=500, body=b"the page failed; the node's log tells why\n")


def parse_head(head: bytes) -> tuple[str, PageRequest | None]:
    """Method and what is asked for; None: it is no request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", None
    try:
        target = urllib.parse.urlsplit(words[1])
    except ValueError:
        return "", None
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

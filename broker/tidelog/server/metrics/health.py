"""Whether a node can be sent work: gRPC's health service, and the probes' pages.

Owns the difference between three answers. *Live*: the process turns. *Ready*: its listeners are
open and it is not about to stop; that never waits for the quorum, since the nodes of a quorum may
have to be found as ready before there is one. *Serving*, for each service: a call of it would not
be turned away by the middleware. A node that stops says first that it does not serve, then lets go.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Final

import msgspec

from tidelog.ports import Page, PageRequest, Server, WatchedServer
from tidelog.ports.pages import HTTP_OK, HTTP_UNAVAILABLE
from tidelog.server.metrics.reflection import service_names

TELL_SECONDS: Final = 1.0
"""A watcher of the health service that takes nothing holds nobody up for longer."""
OVERALL: Final = ""


class _Watched(msgspec.Struct, frozen=True, kw_only=True):
    server: WatchedServer
    early: tuple[str, ...]
    """Services that answer as soon as the listeners are open; with the empty name."""
    late: tuple[str, ...]
    """Services with a method that answers only once the broker is up."""


class Health:
    """Of one node."""

    def __init__(self, *, tell_seconds: float = TELL_SECONDS) -> None:
        self._tell_seconds = tell_seconds
        self._watched: list[_Watched] = []
        self.is_open = False
        self.is_serving = False
        self.is_stopping = False

    def watch(self, server: Server, methods: Iterable[str], late: Iterable[str]) -> None:
        """A listener that was bound, with its methods, and those of them that are late."""
        if isinstance(server, WatchedServer):
            behind = service_names(late)
            early = (each for each in service_names(methods) if each not in behind)
            self._watched.append(_Watched(server=server, early=(OVERALL, *early), late=behind))

    async def open(self) -> None:
        """The listeners answer."""
        self.is_open = True
        for each in self._watched:
            await self._tell(each.server.set_serving(each.early, is_serving=True))

    async def serve(self) -> None:
        """The roles do what they promise."""
        if not self.is_stopping:
            self.is_serving = True
            for each in self._watched:
                await self._tell(each.server.set_serving(each.late, is_serving=True))

    async def stop(self) -> None:
        """Before anything is let go."""
        self.is_stopping, self.is_serving = True, False
        for each in self._watched:
            await self._tell(each.server.end_serving())

    async def _tell(self, told: Coroutine[object, object, None]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tell_seconds):
                await told

    @property
    def is_ready(self) -> bool:
        """Whether the node as a whole can be sent work."""
        return self.is_open and not self.is_stopping

    async def live(self, request: PageRequest) -> Page:
        """`/livez`."""
        del request
        return Page(body=b"live\n")

    async def ready(self, request: PageRequest) -> Page:
        """`/readyz`; the lines behind the first are for people."""
        del request
        lines = [
            "ready" if self.is_ready else "not ready",
            f"listeners: {'open' if self.is_open else 'not open yet'}",
            f"roles: {'serving' if self.is_serving else 'not serving'}",
        ]
        if self.is_stopping:
            lines.append("the node stops")
        status = HTTP_OK if self.is_ready else HTTP_UNAVAILABLE
        return Page(status=status, body="".join(f"{line}\n" for line in lines).encode())

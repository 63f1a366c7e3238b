"""Plain pages over HTTP for machines that watch a node: metrics, probes.

A listener of its own, apart from the network port: it reads a path and answers text, nothing that
comes in reaches a decision. What the port promises: a request is answered or given up within its
deadline, so many at a time, and a page that fails costs its caller an answer and nobody else.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from tidelog.ports.network import Server

HTTP_OK = 200
HTTP_UNAVAILABLE = 503
PLAIN_TEXT = "text/plain; charset=utf-8"


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    path: str
    query: str = ""
    """Behind the question mark, as it came."""
    accept: str = ""
    """Which forms the caller understands."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    body: bytes
    status: int = HTTP_OK
    content_type: str = PLAIN_TEXT


PageHandler = Callable[[PageRequest], Awaitable[Page]]


class Pages(Protocol):
    """Serves pages."""

    async def serve(self, bind: str, handlers: Mapping[str, PageHandler]) -> Server:
        """Answer GET of each path; an address that cannot be bound raises UNAVAILABLE."""
        ...

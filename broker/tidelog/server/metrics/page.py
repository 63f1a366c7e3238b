"""A node's pages for machines: metrics and probes, on a listener of their own.

Owns which page is where. The listener opens before anything else of the node and closes last, so
that a probe can tell a node that starts or stops from one that is gone. One scrape runs at a time.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.ports import Page, PageHandler, PageRequest
from tidelog.ports.pages import HTTP_OK
from tidelog.server.metrics.gather import Gatherer
from tidelog.server.metrics.health import Health
from tidelog.server.metrics.sources import Sources
from tidelog.server.metrics.text import encode

METRICS_PAGE: Final = "/metrics"
LIVE_PAGE: Final = "/livez"
READY_PAGE: Final = "/readyz"


class MonitoringPages:
    """`handlers` for the listener."""

    def __init__(self, health: Health, sources: Callable[[], Sources]) -> None:
        self._sources = sources
        self._gatherer = Gatherer()
        self._health = health
        self._scraping = asyncio.Lock()

    def handlers(self) -> Mapping[str, PageHandler]:
        """By path."""
        return {
            METRICS_PAGE: self.metrics,
            LIVE_PAGE: self._health.live,
            READY_PAGE: self._health.ready,
        }

    async def metrics(self, request: PageRequest) -> Page:
        """`/metrics`."""
        async with self._scraping:
            scrape = await self._gatherer.gather(self._sources())
            body, content_type = await encode(scrape, request.accept)
        return Page(status=HTTP_OK, body=body, content_type=content_type)

"""What watches a node from inside: counts, health, the slow-request log, the pages for machines.

Owns how these are put together, once for each node. It must never decide anything for the node: a
node without anybody who looks does the same.
"""

from collections.abc import Mapping

import msgspec

from tidelog.broker.services.middleware.metering import Metering
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.shared.meter import Meter
from tidelog.ports import Disk, Server
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import LimitedEvents
from tidelog.server.metrics.health import Health
from tidelog.server.metrics.metered_disk import MeteredDisk
from tidelog.server.metrics.page import MonitoringPages
from tidelog.server.metrics.slow_requests import SlowRequests
from tidelog.server.metrics.sources import Sources
from tidelog.server.metrics.text import prepare
from tidelog.server.ports.node import FurtherDisk, NodePorts
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.settings.configuration import NodeConfiguration


class Monitoring:
    """Made before everything else of a node."""

    def __init__(self, configuration: NodeConfiguration, ports: NodePorts) -> None:
        self._disks: list[MeteredDisk] = []
        self._bind = configuration.metrics.bind
        self._server: Server | None = None
        self.ports = self._metered(ports)
        """The same ports, disks counted."""
        self.meter = Meter((CLIENT_LISTENER, CLUSTER_LISTENER))
        self.metering = Metering(self.meter, ports.clock, self._slow_log(configuration))
        self.health = Health()
        self._sources = Sources(
            configuration=configuration,
            clock=ports.clock,
            meter=self.meter,
            health=self.health,
            disks=self._disks,
        )

    def _slow_log(self, configuration: NodeConfiguration) -> SlowRequests | None:
        if not configuration.slow_request_ms:
            return None
        clock = self.ports.clock
        events = LimitedEvents(log_events, clock)
        return SlowRequests(configuration.slow_request_ms, events, clock, self._disks)

    def _metered(self, ports: NodePorts) -> NodePorts:
        def metered(disk: Disk) -> MeteredDisk:
            self._disks.append(MeteredDisk(disk, ports.clock))
            return self._disks[-1]

        further: list[FurtherDisk] = []
        disk = metered(ports.disk)
        quorum_disk = None if ports.quorum_disk is None else metered(ports.quorum_disk)
        for each in ports.further_disks:
            found = None if each.disk is None else metered(each.disk)
            further.append(msgspec.structs.replace(each, disk=found))
        return msgspec.structs.replace(
            ports, disk=disk, quorum_disk=quorum_disk, further_disks=tuple(further)
        )

    @property
    def address(self) -> str:
        """`host:port` of the pages; empty: there are none."""
        return "" if self._server is None else self._server.address

    @property
    def sources(self) -> Sources:
        """What a scrape asks: the parts of the node, as soon as they are there."""
        return self._sources

    async def open(self, cluster_id: str) -> None:
        """Serve the pages, if they are asked for."""
        self._sources = msgspec.structs.replace(self._sources, cluster_id=cluster_id)
        if self._bind and self.ports.pages is not None:
            prepare()
            handlers = MonitoringPages(self.health, lambda: self._sources).handlers()
            self._server = await self.ports.pages.serve(self._bind, handlers)
            log_events.info("metrics_listening", address=self._server.address)

    async def close(self) -> None:
        """The last thing of a node."""
        if self._server is not None:
            await self._server.stop(0)

    def show(
        self,
        *,
        servers: Mapping[str, Server],
        controller: ControllerRole | None,
        broker: BrokerRole | None,
        side: MetadataSide,
        quotas: Quotas,
    ) -> None:
        """The node is built: from now on a scrape asks its parts."""
        self._sources = msgspec.structs.replace(
            self._sources,
            servers=servers,
            controller=controller,
            broker=broker,
            side=side,
            quotas=quotas,
        )

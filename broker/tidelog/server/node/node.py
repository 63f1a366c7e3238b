"""A node from configuration and ports: what starts in which order, and how it ends.

Works the same on real ports and in the simulator. Start: identity, quorum, listeners, then, as a
broker, registration, metadata, log recovery, unfencing. Stop: hand over what is led, refuse new
calls, end those in progress, flush what was accepted, leave the quorum in order. A node answers
what it can as soon as its own directories are recovered: without a majority it says so.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tidelog.broker.replicas.directory import LogDirectory
from tidelog.broker.services.metadata.table import (
    forwarding_methods,
    reading_methods,
    settled_at_once,
)
from tidelog.broker.services.middleware.middleware import Middleware, Served
from tidelog.broker.services.middleware.node_callers import NodeCallers
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.services.middleware.quotas import Throttle
from tidelog.broker.services.table import build_broker_methods
from tidelog.metadata.image.image import Image
from tidelog.ports import Listener, Method, Server, TaskScope
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import LimitedEvents
from tidelog.server.metrics.description import NodeDescription, describe_node
from tidelog.server.metrics.monitoring import Monitoring
from tidelog.server.metrics.reflection import service_names
from tidelog.server.node.cluster_methods import late_methods
from tidelog.server.node.tls import watch_certificates
from tidelog.server.node.view import NodeView, view_of
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.broker import RELEASE, BrokerRole
from tidelog.server.roles.broker_directories import broker_directories
from tidelog.server.roles.clock_keeper import ClockKeeper
from tidelog.server.roles.controller import ControllerRole, open_controller
from tidelog.server.roles.metadata_side import MetadataSide, of_member, of_observer
from tidelog.server.settings.configuration import ListenerSettings, NodeConfiguration
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import NodeIdentity
from tidelog.server.watching.watcher import NodeWatch
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId

__all__ = ["Node", "NodePorts"]


class Node:
    """`run()` starts the node, serves until `request_stop()`, and returns after an orderly stop."""

    def __init__(
        self, configuration: NodeConfiguration, ports: NodePorts, *, may_pick_port: bool = False
    ) -> None:
        self._may_pick_port = may_pick_port
        self._configuration = configuration
        self._monitoring = Monitoring(configuration, ports)
        self._ports = self._monitoring.ports
        self._stop_requested = asyncio.Event()
        self._brought_up = asyncio.Event()
        self._is_ready = False
        self._is_open = False
        self._servers: list[Server] = []
        self._of_quorum: list[asyncio.Task[None]] = []
        """Tasks that wait for news of the quorum, and have to end before it does."""
        self._controller: ControllerRole | None = None
        self._broker: BrokerRole | None = None
        self._directories: tuple[LogDirectory, ...] = ()
        self._side: MetadataSide | None = None
        self._clock_keeper: ClockKeeper | None = None
        """Of a broker."""
        self.client_address = ""
        """`host:port` of the client listener, once it is bound."""
        self.cluster_address = ""
        """`host:port` of the cluster listener, once it is bound."""
        self.cluster_id = ""

    @property
    def is_ready(self) -> bool:
        """Whether a broker serves its partitions; whether a controller is up."""
        return self._is_ready

    @property
    def metrics_address(self) -> str:
        """`host:port` of the pages of metrics and probes; empty: there are none."""
        return self._monitoring.address

    def request_stop(self) -> None:
        """Begin the orderly stop."""
        self._stop_requested.set()

    def describe(self) -> NodeDescription:
        """Figures for operators and metrics."""
        return describe_node(self._configuration, self._controller, self._broker, self._side)

    def view(self) -> NodeView:
        """What it holds in memory, to be looked at."""
        return view_of(self._directories, self._broker, self._side)

    async def run(self, on_ready: Callable[["Node"], None]) -> None:
        """The node's whole life; raises the TidelogError that kept it from starting or going on."""
        identity = await storage_format.read_identity(self._ports.disk, self._configuration.node_id)
        self.cluster_id = self._monitoring.sources.cluster_id = identity.cluster_id
        await self._monitoring.open()
        try:
            await self._run(identity, on_ready)
        finally:
            await self._monitoring.close()
        log_events.info("node_stopped", cluster_id=self.cluster_id)

    async def _run(self, identity: NodeIdentity, on_ready: Callable[["Node"], None]) -> None:
        if self._configuration.is_broker:
            # Before anything is written: a directory of another node is a mistake.
            clock = self._clock_keeper = await ClockKeeper.open(
                self._ports.disk,
                self._ports.clock,
                boot_id=self._ports.host.boot_id(),
                is_own_judge=self._configuration.trust_own_clock,
                broker_id=BrokerId(self._configuration.node_id),
                image=self._image,
            )
            self._directories = await broker_directories(
                identity, self._configuration, self._ports, clock.time
            )
        if self._configuration.is_controller:
            disk = self._ports.quorum_disk
            assert disk is not None, "a controller has a quorum directory"
            self._controller = await open_controller(
                disk, identity, self._configuration, self._ports
            )
        async with TaskScope() as scope:
            try:
                await self._start(scope, identity, on_ready)
                await self._stop_requested.wait()
                await self._stop()
            finally:
                # Also when a task of the node died: nobody may wait for it any more.
                self._is_ready = self._is_open = False
                await self._stop_servers(0)
            scope.cancel()

    def _image(self) -> Image:
        return Image() if self._side is None else self._side.source.image()

    # -- start -----------------------------------------------------------------------------------

    async def _start(
        self, scope: TaskScope, identity: NodeIdentity, on_ready: Callable[["Node"], None]
    ) -> None:
        configuration, ports = self._configuration, self._ports
        controller = self._controller
        cluster = await self._bind(
            configuration.listeners.cluster, self._cluster_middleware(), self._cluster_tables()
        )
        self.cluster_address = cluster.address
        if controller is not None:
            advertised = configuration.listeners.cluster.advertised or cluster.address
            scope.start(controller.run(advertised), name="quorum")
            task = scope.start(controller.run_controller(), name="controller")
            self._of_quorum.append(task)
            scope.start(controller.catch_up(), name="catch up")
            side = of_member(controller, configuration, ports, cluster_address=cluster.address)
        else:
            side = of_observer(identity, configuration, ports)
        self._side = side
        if side.run is not None:
            scope.start(side.run(), name="metadata observer")
        if self._clock_keeper is not None:
            self._broker = BrokerRole(
                identity,
                configuration,
                ports,
                side,
                self._directories,
                self._clock_keeper,
                self._monitoring.meter,
            )
        client = await self._bind(
            configuration.listeners.client, self._client_middleware(side), self._client_tables(side)
        )
        self.client_address = client.address
        self._is_open = True
        await self._monitoring.health.open()
        sources = self._monitoring.sources
        watch = NodeWatch(configuration, ports, controller, self._broker, side, sources)
        self._of_quorum.append(scope.start(watch.run(), name="watch"))
        scope.start(
            watch_certificates(
                ports.certificates, ports.clock, configuration.certificate_reload_ms
            ),
            name="certificates",
        )
        self._bring_up_task = scope.start(self._bring_up(scope, on_ready), name="bring up")
        self._bring_up_task.add_done_callback(lambda task: self._brought_up.set())

    async def _bring_up(self, scope: TaskScope, on_ready: Callable[["Node"], None]) -> None:
        if self._broker is not None:
            await self._broker.bring_up(scope, self._advertised())
        if self._stop_requested.is_set():
            return
        self._is_ready = True
        await self._monitoring.health.serve()
        log_events.info(
            "node_ready",
            address=self.client_address,
            cluster_address=self.cluster_address,
            cluster_id=self.cluster_id,
            roles=",".join(self._configuration.roles),
        )
        on_ready(self)

    def _advertised(self) -> dict[str, str]:
        listeners = self._configuration.listeners
        return {
            CLIENT_LISTENER: listeners.client.advertised or self.client_address,
            CLUSTER_LISTENER: listeners.cluster.advertised or self.cluster_address,
        }

    async def _bind(
        self,
        settings: ListenerSettings,
        middleware: Middleware,
        tables: Sequence[Served],
    ) -> Server:
        """Serve at the address; at another port if it is taken and that is allowed."""
        name, methods = middleware.listener, middleware.around(*tables)
        services = service_names(methods) if name == CLIENT_LISTENER else ()
        listener = Listener(
            name=name,
            bind=settings.bind,
            reflection_services=services,
            tls=settings.tls_files(),
            requires_client_certificate=settings.tls.client_auth == "required",
            limits=settings.limits,
            starts_serving=False,
        )
        try:
            server = await self._ports.network.serve(listener, methods)
        except TidelogError as error:
            if not self._may_pick_port or error.code is not ErrorCode.UNAVAILABLE:
                raise
            host = listener.bind.rpartition(":")[0]
            free = msgspec.structs.replace(listener, bind=f"{host}:0")
            server = await self._ports.network.serve(free, methods)
        self._servers.append(server)
        late = [each for table in tables if table.is_late for each in table.methods]
        self._monitoring.watch(name, server, methods, late)
        return server

    def _cluster_middleware(self) -> Middleware:
        principals = self._configuration.listeners.node_principals()
        events = LimitedEvents(log_events, self._ports.clock)
        return Middleware(
            CLUSTER_LISTENER,
            self._ports.authorizer,
            self._monitoring.metering,
            callers=None if principals is None else NodeCallers(principals, events),
        )

    def _cluster_tables(self) -> Sequence[Served]:
        """What other nodes may ask: of a voter, of a broker."""
        tables: list[Served] = []
        if self._controller is not None:
            tables.append(Served(methods=self._controller.methods(), is_ready=lambda: True))
        if self._configuration.is_broker:
            replicas = late_methods(self._broker_methods)
            tables.append(Served(methods=replicas, is_ready=self._serves_replicas, is_late=True))
        return tables

    def _serves_replicas(self) -> bool:
        return self._broker is not None and self._broker.is_recovered

    def _broker_methods(self) -> Mapping[str, Method]:
        assert self._broker is not None, "replicas are served once there are some"
        return self._broker.cluster_methods()

    def _client_middleware(self, side: MetadataSide) -> Middleware:
        quotas = Quotas(side.metadata.image)
        self._monitoring.know(
            controller=self._controller, broker=self._broker, side=side, quotas=quotas
        )
        return Middleware(
            CLIENT_LISTENER,
            self._ports.authorizer,
            self._monitoring.metering,
            throttle=Throttle(quotas, self._ports.clock),
        )

    def _client_tables(self, side: MetadataSide) -> Sequence[Served]:
        """What programs and operators may ask."""
        limits = self._configuration.broker_limits()
        broker = self._broker
        forwarded = forwarding_methods(
            side.metadata,
            self._ports.clock,
            timeout_ms=limits.admin_timeout_ms,
            settle=settled_at_once if broker is None else broker.settle,
        )
        tables = [
            Served(methods=forwarded, is_ready=lambda: self._is_open),
            Served(
                methods=reading_methods(side.metadata),
                is_ready=lambda: self._is_open and self._is_current(),
            ),
        ]
        if broker is not None:
            served = build_broker_methods(
                broker.handlers(),
                release=RELEASE,
                stream_requests_max=limits.stream_requests_max,
                metering=self._monitoring.metering,
            )
            tables.append(Served(methods=served, is_ready=lambda: self._is_ready, is_late=True))
        return tables

    def _is_current(self) -> bool:
        """Whether the image holds what was committed when this process started."""
        if self._broker is not None:
            return self._broker.is_current
        return self._controller is not None and self._controller.is_current

    # -- stop ------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """The broker before the quorum: what it hands over has to be committed."""
        await self._monitoring.health.stop()
        broker, controller = self._broker, self._controller
        if broker is not None and self._is_ready:
            await broker.hand_over()
        self._is_ready = self._is_open = False
        self._bring_up_task.cancel()
        await self._brought_up.wait()
        client = self._servers.pop()
        await client.stop(self._configuration.shutdown_grace_ms)
        if broker is not None:
            await broker.stop()
        for task in self._of_quorum:
            task.cancel()
        if controller is not None:
            await controller.stop()

    async def _stop_servers(self, grace_ms: int) -> None:
        while self._servers:
            await self._servers.pop().stop(grace_ms)

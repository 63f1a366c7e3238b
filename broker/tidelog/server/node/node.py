"""A node from configuration and ports: what starts in which order, and how it ends.

Works the same on real ports and in the simulator. Start: identity, quorum, listeners, then, as a
broker, registration, metadata, log recovery, unfencing. Stop: hand over what is led, refuse new
calls, end those in progress, flush what was accepted, leave the quorum in order. A node answers
what it can as soon as its own directories are recovered: without a majority it says so.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from tidelog.broker.services.middleware.middleware import Middleware, Served
from tidelog.broker.services.middleware.node_callers import NodeCallers
from tidelog.broker.services.middleware.quotas import Throttle
from tidelog.ports import Listener, Server, TaskScope
from tidelog.ports.request_context import CLIENT_LISTENER, CLUSTER_LISTENER
from tidelog.server.events import log as log_events
from tidelog.server.events.limit import LimitedEvents
from tidelog.server.metrics.description import NodeDescription, describe_node
from tidelog.server.metrics.monitoring import Monitoring
from tidelog.server.metrics.reflection import service_names
from tidelog.server.node.build import (
    NodeParts,
    NodeStorage,
    Phase,
    build_node,
    open_node_storage,
)
from tidelog.server.node.cluster_methods import REPLICA_FILES, Routes
from tidelog.server.node.tls import watch_certificates
from tidelog.server.node.view import NodeView, view_of
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.settings.configuration import ListenerSettings, NodeConfiguration
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import NodeIdentity
from tidelog.server.watching.watcher import NodeWatch
from tidelog.wire.errors import ErrorCode, TidelogError

__all__ = ["Node", "NodePorts"]


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs, as far as its stop needs it."""

    storage: NodeStorage
    parts: NodeParts
    client: Server
    bring_up: asyncio.Task[None]
    brought_up: asyncio.Event
    """The task has ended, whatever came of it."""
    of_quorum: tuple[asyncio.Task[None], ...]
    """Tasks that wait for news of the quorum, and have to end before it does."""


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
        self._phase = Phase()
        self._servers: dict[str, Server] = {}
        """By listener, those that are not stopped yet."""
        self._storage: NodeStorage | None = None
        """None: it is not open yet."""
        self._parts: NodeParts | None = None
        """None: the node is not built yet."""
        self.client_address = ""
        """`host:port` of the client listener, once it is bound."""
        self.cluster_address = ""
        """`host:port` of the cluster listener, once it is bound."""
        self.cluster_id = ""

    @property
    def is_ready(self) -> bool:
        """Whether a broker serves its partitions; whether a controller is up."""
        return self._phase.is_ready

    @property
    def metrics_address(self) -> str:
        """`host:port` of the pages of metrics and probes; empty: there are none."""
        return self._monitoring.address

    @property
    def _broker(self) -> BrokerRole | None:
        return None if self._parts is None else self._parts.broker

    def request_stop(self) -> None:
        """Begin the orderly stop."""
        self._stop_requested.set()

    def describe(self) -> NodeDescription:
        """Figures for operators and metrics."""
        controller = None if self._storage is None else self._storage.controller
        side = None if self._parts is None else self._parts.side
        return describe_node(self._configuration, controller, self._broker, side)

    def view(self) -> NodeView:
        """What it holds in memory, to be looked at."""
        directories = () if self._storage is None else self._storage.directories
        return view_of(directories, self._broker, None if self._parts is None else self._parts.side)

    async def run(self, on_ready: Callable[["Node"], None]) -> None:
        """The node's whole life; raises the TidelogError that kept it from starting or going on."""
        identity = await storage_format.read_identity(self._ports.disk, self._configuration.node_id)
        self.cluster_id = identity.cluster_id
        await self._monitoring.open(identity.cluster_id)
        try:
            await self._run(identity, on_ready)
        finally:
            await self._monitoring.close()
        log_events.info("node_stopped", cluster_id=self.cluster_id)

    async def _run(self, identity: NodeIdentity, on_ready: Callable[["Node"], None]) -> None:
        storage = await open_node_storage(identity, self._configuration, self._ports)
        self._storage = storage
        async with TaskScope() as scope:
            try:
                started = await self._start(scope, identity, storage, on_ready)
                await self._stop_requested.wait()
                await self._stop(started)
            finally:
                # Also when a task of the node died: nobody may wait for it any more.
                self._phase.end()
                await self._stop_servers()
            scope.cancel()

    # -- start -----------------------------------------------------------------------------------

    async def _start(
        self,
        scope: TaskScope,
        identity: NodeIdentity,
        storage: NodeStorage,
        on_ready: Callable[["Node"], None],
    ) -> _Started:
        configuration, ports, monitoring = self._configuration, self._ports, self._monitoring
        routes = Routes(REPLICA_FILES)
        self.cluster_address = await self._bind_cluster(storage, routes)
        of_quorum: list[asyncio.Task[None]] = []
        controller = storage.controller
        if controller is not None:
            advertised = configuration.listeners.cluster.advertised or self.cluster_address
            scope.start(controller.run(advertised), name="quorum")
            of_quorum.append(scope.start(controller.run_controller(), name="controller"))
            scope.start(controller.catch_up(), name="catch up")
        parts = self._parts = build_node(
            identity,
            configuration,
            ports,
            storage,
            monitoring.metering,
            self._phase,
            cluster_address=self.cluster_address,
        )
        if parts.side.run is not None:
            scope.start(parts.side.run(), name="metadata observer")
        if parts.replica_table is not None:
            routes.lead_to(parts.replica_table)
        client = await self._bind_client(parts)
        self.client_address = client.address
        self._phase.open()
        monitoring.show(
            servers=dict(self._servers),
            controller=controller,
            broker=parts.broker,
            side=parts.side,
            quotas=parts.quotas,
        )
        await monitoring.health.open()
        watch = self._watch(controller, parts)
        of_quorum.append(scope.start(watch.run(), name="watch"))
        self._watch_certificates(scope)
        bring_up = scope.start(self._bring_up(scope, parts.broker, on_ready), name="bring up")
        brought_up = asyncio.Event()
        bring_up.add_done_callback(lambda task: brought_up.set())
        return _Started(
            storage=storage,
            parts=parts,
            client=client,
            bring_up=bring_up,
            brought_up=brought_up,
            of_quorum=tuple(of_quorum),
        )

    def _watch(self, controller: ControllerRole | None, parts: NodeParts) -> NodeWatch:
        side, configuration = parts.side, self._configuration
        return NodeWatch(
            self._ports.clock,
            side.metadata,
            side.controller,
            side.trouble,
            controller,
            parts.broker,
            self._monitoring.sources,
            node_id=configuration.node_id,
            stall_log_ms=configuration.stall_log_ms,
        )

    def _watch_certificates(self, scope: TaskScope) -> None:
        ports, interval_ms = self._ports, self._configuration.certificate_reload_ms
        watch = watch_certificates(ports.certificates, ports.clock, interval_ms)
        scope.start(watch, name="certificates")

    async def _bring_up(
        self, scope: TaskScope, broker: BrokerRole | None, on_ready: Callable[["Node"], None]
    ) -> None:
        if broker is not None:
            await broker.bring_up(scope, self._advertised())
        if self._stop_requested.is_set():
            return
        self._phase.get_ready()
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

    async def _bind_cluster(self, storage: NodeStorage, routes: Routes) -> str:
        """The address; what other nodes may ask of a voter is answered, of a broker not yet."""
        tables: list[Served] = []
        if storage.controller is not None:
            tables.append(Served(methods=storage.controller.methods(), is_ready=lambda: True))
        if self._configuration.is_broker:
            tables.append(routes.served())
        listeners = self._configuration.listeners
        principals = listeners.node_principals()
        events = LimitedEvents(log_events, self._ports.clock)
        middleware = Middleware(
            CLUSTER_LISTENER,
            self._ports.authorizer,
            self._monitoring.metering,
            callers=None if principals is None else NodeCallers(principals, events),
        )
        return (await self._bind(listeners.cluster, middleware, tables)).address

    async def _bind_client(self, parts: NodeParts) -> Server:
        middleware = Middleware(
            CLIENT_LISTENER,
            self._ports.authorizer,
            self._monitoring.metering,
            throttle=Throttle(parts.quotas, self._ports.clock),
        )
        settings = self._configuration.listeners.client
        return await self._bind(settings, middleware, parts.client_tables)

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
        self._servers[name] = server
        late = [each for table in tables if table.is_late for each in table.methods]
        self._monitoring.health.watch(server, methods, late)
        return server

    # -- stop ------------------------------------------------------------------------------------

    async def _stop(self, started: _Started) -> None:
        """The broker before the quorum: what it hands over has to be committed."""
        await self._monitoring.health.stop()
        broker, controller = started.parts.broker, started.storage.controller
        if broker is not None and self.is_ready:
            await broker.hand_over()
        self._phase.end()
        started.bring_up.cancel()
        await started.brought_up.wait()
        del self._servers[CLIENT_LISTENER]
        await started.client.stop(self._configuration.shutdown_grace_ms)
        if broker is not None:
            await broker.stop()
        for task in started.of_quorum:
            task.cancel()
        if controller is not None:
            await controller.stop()

    async def _stop_servers(self) -> None:
        while self._servers:
            _, server = self._servers.popitem()
            await server.stop(0)

"""A node from configuration and ports: what starts in which order, and how it ends.

Works the same on real ports and in the simulator. Start: format, metadata, log recovery, listeners,
register, unfence. Stop: refuse new calls, end those in progress, flush what was accepted, leave the
clean-shutdown marker. Readiness never waits for anything but this node's own recovery.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidelog.broker.handlers.admin import AdminHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.records import RecordsHandler
from tidelog.broker.partition import marks_file
from tidelog.broker.replicas import RecoverySummary, Replicas
from tidelog.broker.rpc.table import Gate, Handlers, build_methods, service_names
from tidelog.metadata_quorum import single_node
from tidelog.metadata_quorum.controller.brokers import Registration
from tidelog.metadata_quorum.port import Metadata
from tidelog.metadata_quorum.single_node import SingleNodeMetadata
from tidelog.ports import (
    Authorizer,
    Clock,
    Disk,
    Host,
    Listener,
    Method,
    Network,
    Random,
    Server,
    TaskScope,
)
from tidelog.ports.request_context import CLIENT_LISTENER
from tidelog.server import log_events, storage_format
from tidelog.server.configuration import NodeConfiguration
from tidelog.server.storage_format import CleanShutdown, NodeIdentity
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

RELEASE: Final = "0.1.0"
WATCH_MS: Final = 1_000
"""How often the loop's lateness and the disk's health are looked at."""
NS_PER_MS: Final = 1_000_000


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything through which a node touches the world. Whoever made them closes them."""

    clock: Clock
    random: Random
    disk: Disk
    network: Network
    host: Host
    authorizer: Authorizer


class Node:
    """`run()` starts the node, serves until `request_stop()`, and returns after an orderly stop."""

    def __init__(
        self, configuration: NodeConfiguration, ports: NodePorts, *, may_pick_port: bool = False
    ) -> None:
        self._may_pick_port = may_pick_port
        self._configuration = configuration
        self._ports = ports
        self._stop_requested = asyncio.Event()
        self._is_ready = False
        self.client_address = ""
        """`host:port` of the client listener, once it serves."""
        self.cluster_id = ""

    @property
    def is_ready(self) -> bool:
        """Whether calls are answered."""
        return self._is_ready

    def request_stop(self) -> None:
        """Begin the orderly stop."""
        self._stop_requested.set()

    async def run(self, on_ready: Callable[["Node"], None]) -> None:
        """The node's whole life; raises the TidelogError that kept it from starting."""
        async with TaskScope() as scope:
            identity = await storage_format.open_or_format(
                self._ports.disk, self._ports.random, self._configuration.node_id
            )
            self.cluster_id = identity.cluster_id
            marker = await storage_format.take_clean_marker(self._ports.disk)
            metadata = await self._open_metadata(identity)
            metadata_task = scope.start(metadata.run(), name="metadata")
            replicas = await self._open_replicas(metadata, was_clean=marker is not None)
            owner_task = scope.start(replicas.owner.run(), name="directory owner")
            scope.start(replicas.run(), name="replicas")
            scope.start(self._watch_loop(), name="stall log")
            scope.start(self._watch_storage(metadata, replicas), name="storage log")
            server = await self._serve(metadata, replicas)
            grace_ms = 0
            try:
                epoch = await self._register(metadata)
                self._become_ready(on_ready)
                await self._stop_requested.wait()
                grace_ms = self._configuration.shutdown_grace_ms
            finally:
                # Also when a task of the node died: nobody may wait for it any more.
                self._is_ready = False
                await server.stop(grace_ms)
            replicas.owner.stop()
            await owner_task
            await metadata.stop()
            await metadata_task
            await self._leave_marker(replicas, epoch)
            scope.cancel()
        log_events.info("node_stopped", cluster_id=self.cluster_id)

    def _become_ready(self, on_ready: Callable[["Node"], None]) -> None:
        if self._stop_requested.is_set():
            return
        self._is_ready = True
        log_events.info("node_ready", address=self.client_address, cluster_id=self.cluster_id)
        on_ready(self)

    async def _watch_storage(self, metadata: SingleNodeMetadata, replicas: Replicas) -> None:
        """Say once when the disk has failed: the node goes on answering, with errors."""
        told: list[TidelogError] = []
        while True:
            for what, failure in (
                ("metadata", metadata.failure),
                ("partitions", replicas.owner.failure),
            ):
                if failure is not None and failure not in told:
                    told.append(failure)
                    log_events.error("storage_stopped", what=what, error=failure)
            await self._ports.clock.sleep(WATCH_MS)

    async def _watch_loop(self) -> None:
        """Say when the loop was late: whoever holds it up holds up every deadline of the node."""
        clock, threshold_ms = self._ports.clock, self._configuration.stall_log_ms
        while True:
            due_ns = clock.monotonic_ns() + WATCH_MS * NS_PER_MS
            await clock.sleep(WATCH_MS)
            late_ms = (clock.monotonic_ns() - due_ns) // NS_PER_MS
            if late_ms > threshold_ms:
                log_events.warning("loop_stalled", late_ms=late_ms)

    async def _open_metadata(self, identity: NodeIdentity) -> SingleNodeMetadata:
        disk = self._ports.disk
        # The marks are made after the metadata log, and neither is ever deleted.
        was_used = marks_file.NAME in await disk.list()
        file, image, torn_bytes = await single_node.open_log(
            disk, identity.cluster_id, must_exist=was_used
        )
        if torn_bytes:
            log_events.warning("metadata_torn_tail_cut", bytes=torn_bytes, file=file.path)
        return SingleNodeMetadata(
            disk,
            file,
            image,
            random=self._ports.random,
            broker_id=BrokerId(identity.node_id),
            defaults=self._configuration.topic_defaults(),
        )

    async def _open_replicas(self, metadata: Metadata, *, was_clean: bool) -> Replicas:
        replicas = Replicas(
            self._ports.disk,
            metadata,
            BrokerId(self._configuration.node_id),
            queued_bytes_max=self._configuration.produce.queued_bytes_max,
        )
        summary = await replicas.recover()
        _log_recovery(summary, was_clean=was_clean)
        return replicas

    async def _serve(self, metadata: Metadata, replicas: Replicas) -> Server:
        limits = self._configuration.broker_limits()
        gate = Gate(authorizer=self._ports.authorizer, is_ready=lambda: self._is_ready)
        methods = build_methods(
            self._handlers(metadata, replicas),
            gate,
            listener=CLIENT_LISTENER,
            release=RELEASE,
            stream_requests_max=limits.stream_requests_max,
        )
        listener = Listener(
            name=CLIENT_LISTENER,
            bind=self._configuration.listeners.client.bind,
            reflection_services=service_names(),
        )
        server = await self._bind(listener, methods)
        self.client_address = server.address
        return server

    async def _bind(self, listener: Listener, methods: Mapping[str, Method]) -> Server:
        """Serve at the address; at another port if it is taken and that is allowed."""
        try:
            return await self._ports.network.serve(listener, methods)
        except TidelogError as error:
            if not self._may_pick_port or error.code is not ErrorCode.UNAVAILABLE:
                raise
        host = listener.bind.rpartition(":")[0]
        free = msgspec.structs.replace(listener, bind=f"{host}:0")
        return await self._ports.network.serve(free, methods)

    def _handlers(self, metadata: Metadata, replicas: Replicas) -> Handlers:
        ports, limits = self._ports, self._configuration.broker_limits()
        produce = ProduceHandler(replicas, ports.clock, limits)
        fetch = FetchHandler(replicas, limits)
        topics = MetadataHandler(
            metadata, replicas, limits, auto_create_topics=self._configuration.auto_create_topics
        )
        return Handlers(
            produce=produce,
            fetch=fetch,
            records=RecordsHandler(
                topics, produce, fetch, clock=ports.clock, random=ports.random, limits=limits
            ),
            metadata=topics,
            offsets=OffsetsHandler(replicas, fetch),
            admin=AdminHandler(metadata, replicas, limits),
        )

    async def _register(self, metadata: Metadata) -> BrokerEpoch:
        advertised = self._configuration.listeners.client.advertised or self.client_address
        broker_id = BrokerId(self._configuration.node_id)
        epoch = await metadata.register_broker(
            Registration(
                broker_id=broker_id,
                incarnation=self._ports.random.uuid(),
                listeners={CLIENT_LISTENER: advertised},
                host_name=self._ports.host.host_name(),
                rack=self._configuration.rack,
            )
        )
        await metadata.unfence_broker(broker_id, epoch)
        return epoch

    async def _leave_marker(self, replicas: Replicas, epoch: BrokerEpoch) -> None:
        """A directory that failed leaves none: its next start must look at every byte."""
        if replicas.owner.failure is not None:
            return
        marker = CleanShutdown(broker_epoch=epoch, boot_id=self._ports.host.boot_id())
        try:
            await storage_format.write_clean_marker(self._ports.disk, marker)
        except TidelogError as error:
            # Everything is flushed; without the marker the next start only looks closer.
            log_events.warning("clean_marker_not_written", error=error)


def _log_recovery(summary: RecoverySummary, *, was_clean: bool) -> None:
    log_events.info(
        "logs_recovered",
        partitions=summary.partitions,
        torn_bytes=summary.torn_bytes,
        after_clean_stop=was_clean,
    )
    for failure in summary.failures:
        log_events.error("partition_stopped", error=failure)
    for orphan in summary.orphans:
        log_events.warning("orphan_directory_kept", directory=orphan)

"""A node's part as a broker: replicas, what clients ask of them, the tie to the controller.

Owns the order of a broker's start and stop. It must never want to serve before its logs are
recovered against metadata that hold its own registration and its epoch is stored in every directory
that works, nor leave the clean-shutdown marker unless everything that was accepted is flushed.

    stored epochs → register → metadata caught up → store epoch → log recovery → unfence → …
    … → hand over → flush → marker
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from tidelog.broker.replicas.directory import LogDirectory, RecoverySummary
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.fetch.handler import FetchHandler
from tidelog.broker.services.fetch.places import ReadPlaces
from tidelog.broker.services.log_dirs.handler import LogDirsHandler
from tidelog.broker.services.log_dirs.wire import LogDirsRpc
from tidelog.broker.services.metadata.handler import MetadataHandler
from tidelog.broker.services.offsets.handler import OffsetsHandler
from tidelog.broker.services.offsets.trim import TrimHandler
from tidelog.broker.services.produce.handler import ProduceHandler
from tidelog.broker.services.produce.peers import ProducePeers
from tidelog.broker.services.producer_ids.handler import ProducerIds
from tidelog.broker.services.producer_ids.wire import ControllerBlocks
from tidelog.broker.services.records.handler import RecordsHandler
from tidelog.broker.services.shared.leadership import Leadership
from tidelog.broker.services.table import Handlers
from tidelog.broker.services.topics.handler import AdminHandler
from tidelog.broker.shared.meter import Meter
from tidelog.broker.shared.node_time import NodeTime
from tidelog.metadata.broker_reports import NO_CLEAN_SHUTDOWN, Registration
from tidelog.metadata.features import SUPPORTED
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import BrokerDirectory
from tidelog.metadata_quorum.stream.session_client import BrokerSession
from tidelog.ports import Method, TaskScope
from tidelog.server.events import log as log_events
from tidelog.server.ports.node import NodePorts
from tidelog.server.roles.broker_contact import Contact, ContactWatch
from tidelog.server.roles.broker_groups import BrokerGroups
from tidelog.server.roles.broker_replication import BrokerReplication
from tidelog.server.roles.clock_keeper import ClockKeeper
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import CleanShutdown, NodeIdentity
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId

RELEASE: Final = "0.1.0"


class BrokerRole:
    """`bring_up` once the listeners are bound, `stop` at the end."""

    def __init__(
        self,
        identity: NodeIdentity,
        configuration: NodeConfiguration,
        ports: NodePorts,
        side: MetadataSide,
        directories: tuple[LogDirectory, ...],
        clock: ClockKeeper,
        meter: Meter | None = None,
    ) -> None:
        self._clock_keeper = clock
        self._meter = meter
        self._identity = identity
        self._configuration = configuration
        self._ports = ports
        self._side = side
        self._directories = directories
        self._directory_tasks: list[asyncio.Task[None]] = []
        self.session: BrokerSession | None = None
        self.is_current = False
        """Whether the image holds what was committed when this process registered."""
        self._is_recovered = False
        broker_id = BrokerId(configuration.node_id)
        self.replicas = Replicas(directories, side.metadata, broker_id)
        self._producer_ids = self._make_producer_ids()
        self.replication = BrokerReplication(
            self.replicas,
            ports,
            side,
            cluster_id=identity.cluster_id,
            broker_id=broker_id,
            broker_epoch=self._epoch,
            peer_addresses=configuration.peer_addresses,
            limits=configuration.replication_limits(),
        )

        self._log_dirs = self._make_log_dirs()
        self._contact = Contact()
        self._leadership = Leadership(
            self._read_index, self.replicas.wait_applied, is_in_contact=self._contact.holds
        )
        self._fetch = self._make_fetch()
        self._produce = self._make_produce()
        self._produce_peers = self._make_produce_peers()
        self.groups = BrokerGroups(
            self.replicas,
            ports,
            side,
            self._fetch,
            meter or Meter(()),
            time=clock.time,
            cluster_id=identity.cluster_id,
            broker_id=broker_id,
            broker_epoch=self._epoch,
            address_of=self.replication.address_of,
            is_in_contact=self._contact.holds,
        )

    def _make_log_dirs(self) -> LogDirsRpc:
        return LogDirsRpc(
            LogDirsHandler(self.replicas),
            self._side.source,
            self._ports.network,
            cluster_id=self._identity.cluster_id,
            broker_id=BrokerId(self._configuration.node_id),
            address_of=self.replication.address_of,
        )

    def _make_fetch(self) -> FetchHandler:
        places = ReadPlaces(self._side.metadata, BrokerId(self._configuration.node_id))
        limits = self._configuration.broker_limits()
        return FetchHandler(self.replicas, limits, self._leadership, places)

    def _make_produce(self) -> ProduceHandler:
        limits = self._configuration.broker_limits()
        return ProduceHandler(
            self.replicas,
            self.time,
            limits,
            self._side.metadata,
            self._meter,
            leadership=self._leadership,
        )

    def _make_produce_peers(self) -> ProducePeers:
        return ProducePeers(
            self._ports.network,
            cluster_id=self._identity.cluster_id,
            address_of=self.replication.address_of,
            timeout_ms=self._configuration.broker_limits().produce_timeout_ms,
        )

    async def _read_index(self, timeout_ms: int) -> int:
        return await self._side.metadata.read_index(timeout_ms=timeout_ms)

    def _make_producer_ids(self) -> ProducerIds:
        blocks = ControllerBlocks(
            self._side.controller,
            cluster_id=self._identity.cluster_id,
            broker_id=BrokerId(self._configuration.node_id),
            broker_epoch=self._epoch,
        )
        return ProducerIds(blocks, self._ports.clock)

    def _epoch(self) -> BrokerEpoch:
        assert self.session is not None, "replicas are copied after the registration"
        return self.session.epoch

    def cluster_methods(self) -> Mapping[str, Method]:
        """What other brokers may ask."""
        return {
            **self.replication.methods(),
            **self._log_dirs.peer_methods(),
            **self.groups.methods(),
            **self._produce_peers.methods(self._produce),
        }

    @property
    def directories(self) -> tuple[LogDirectory, ...]:
        """The data directory and every one of log_dirs."""
        return self._directories

    @property
    def time(self) -> NodeTime:
        """What time it is for this node, and whether it may delete by it."""
        return self._clock_keeper.time

    def image(self) -> Image:
        """The metadata as this broker knows them."""
        return self._side.source.image()

    @property
    def is_recovered(self) -> bool:
        """Whether the logs are open and their owners run."""
        return self._is_recovered

    @property
    def failures(self) -> dict[str, TidelogError]:
        """By directory, why it stopped."""
        return {each.name: each.failure for each in self._directories if each.failure is not None}

    @property
    def full_disks(self) -> dict[str, TidelogError]:
        """By directory, what the disk said to the last write if that was that there is no room."""
        return {each.name: each.no_room for each in self._directories if each.no_room is not None}

    @property
    def queued_bytes(self) -> int:
        """Batches between arrival and acknowledgement."""
        return sum(each.queued_bytes for each in self._directories)

    async def _report_failure(self, directory: LogDirectory) -> None:
        """Tell the controller as soon as the directory stops: others are to lead what lies there.

        Whoever writes the log looks at failures as well, but now and then, and decides nothing.
        """
        await directory.wait_failed()
        self._report_directories()

    def _report_directories(self) -> None:
        assert self.session is not None, "directories are opened after the registration"
        self.session.report_directories(self._described())

    def _described(self) -> tuple[BrokerDirectory, ...]:
        return tuple(
            BrokerDirectory(each.directory_uuid, each.failure is None)
            for each in self._directories
            if each.directory_uuid
        )

    def handlers(self) -> Handlers:
        """What clients may ask."""
        ports, limits = self._ports, self._configuration.broker_limits()
        metadata, replicas = self._side.metadata, self.replicas
        produce, fetch = self._produce, self._fetch
        topics = MetadataHandler(
            metadata, replicas, limits, auto_create_topics=self._configuration.auto_create_topics
        )
        return Handlers(
            produce=produce,
            producer_ids=self._producer_ids,
            fetch=fetch,
            records=RecordsHandler(
                topics,
                produce,
                fetch,
                self._produce_peers.produce,
                broker_id=BrokerId(self._configuration.node_id),
                time=self.time,
                random=ports.random,
                limits=limits,
            ),
            metadata=topics,
            offsets=OffsetsHandler(replicas, self._leadership),
            admin=AdminHandler(
                metadata,
                replicas,
                limits,
                broker_id=BrokerId(self._configuration.node_id),
                followers=self.replication.in_sync.followers,
            ),
            trim=TrimHandler(replicas, self._leadership),
            log_dirs=self._log_dirs,
            coordinators=self.groups.finder,
            members=self.groups.members,
            group_admin=self.groups.admin,
            subscriptions=self.groups.subscriptions,
        )

    async def bring_up(self, scope: TaskScope, listeners: Mapping[str, str]) -> None:
        """Until the broker serves; what it needs later runs in the scope."""
        marker = await storage_format.read_clean_marker(self._ports.disk)
        session = self.session = self._make_session(listeners, marker, await self._find_epochs())
        await session.register()
        scope.start(session.run(), name="broker session")
        scope.start(self._clock_keeper.run(), name="clock")
        await session.wait_registered()
        self.is_current = True
        self._log_gone_back()
        await storage_format.remove_clean_marker(self._ports.disk)
        await session.store_epoch()
        summary = await self.replicas.recover()
        _log_recovery(summary, was_clean=marker is not None)
        for directory in self._directories:
            if directory.is_open:
                task = scope.start(directory.run(), name=f"directory {directory.name}")
                self._directory_tasks.append(task)
                scope.start(self._report_failure(directory), name=f"failure of {directory.name}")
        self._is_recovered = True
        self._report_directories()
        scope.start(self.replicas.run(), name="replicas")
        scope.start(self._producer_ids.run(), name="producer ids")
        self._contact.begin(session)
        watch = ContactWatch(
            session,
            self.replicas,
            self._ports.clock,
            self._contact,
            partial(self._leadership.confirm, "learn who leads by now"),
        )
        scope.start(watch.run(), name="contact with a controller")
        self.replication.start(scope)
        self.groups.start(scope)
        session.want_unfence()
        await session.wait_unfenced()

    async def settle(self, version: int) -> None:
        """Until this broker serves what that version of the metadata places here."""
        if self.is_recovered:
            await self.replicas.wait_applied(version)

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, as far as there are others."""
        session = self.session
        if session is None or not self.is_recovered or self._side.controller.leader() is None:
            return
        if not await session.shut_down(self._configuration.handover_ms):
            log_events.warning("handed_over_in_part", waited_ms=self._configuration.handover_ms)

    async def stop(self) -> None:
        """Flush what was accepted, then leave the marker."""
        if not self._is_recovered:
            return
        await self._clock_keeper.store()
        are_flushed = [await directory.stop() for directory in self._directories]
        for task in self._directory_tasks:
            await task
        assert self.session is not None, "logs are recovered after the registration"
        if not all(are_flushed):
            # A directory that failed has lost what it had accepted.
            return
        marker = CleanShutdown(broker_epoch=self.session.epoch, boot_id=self._ports.host.boot_id())
        try:
            await storage_format.write_clean_marker(self._ports.disk, marker)
        except TidelogError as error:
            # Everything is flushed; without the marker the next start only looks closer.
            log_events.warning("clean_marker_not_written", error=error)

    async def _find_epochs(self) -> Mapping[bytes, BrokerEpoch]:
        """What is stored in the directories that can be read, by their uuids."""
        found: dict[bytes, BrokerEpoch] = {}
        for each in self._directories:
            epoch = await each.read_epoch()
            if epoch is not None:
                found[each.directory_uuid] = epoch
        return found

    async def _store_epoch(self, epoch: BrokerEpoch) -> Mapping[bytes, BrokerEpoch]:
        """In all that work; one in which it cannot be stored before the logs are open fails."""
        for each in self._directories:
            await each.store_epoch(epoch)
        return {each.directory_uuid: epoch for each in self._directories if each.failure is None}

    def _log_gone_back(self) -> None:
        """What the controller found of the directories by the epochs that they hold."""
        broker = self.image().brokers.get(BrokerId(self._configuration.node_id))
        names = {each.directory_uuid: each.name for each in self._directories}
        for each in () if broker is None else broker.directory_epochs:
            if each.went_back_from is not None and each.uuid in names:
                log_events.error(
                    "directory_went_back",
                    directory=names[each.uuid],
                    stored_epoch=each.went_back_to,
                    served_epoch=each.went_back_from,
                    hint="It is an older copy of the data directory, or what tells its age is gone "
                    "from it. Its replicas lead nothing until leaders have sent them what they "
                    "lack; nothing of them is discarded before. Where no other replica is left the "
                    "longest log leads.",
                )

    def _make_session(
        self,
        listeners: Mapping[str, str],
        marker: CleanShutdown | None,
        stored_epochs: Mapping[bytes, BrokerEpoch],
    ) -> BrokerSession:
        host = self._ports.host
        registration = Registration(
            broker_id=BrokerId(self._configuration.node_id),
            incarnation=self._ports.random.uuid(),
            listeners=listeners,
            host_name=host.host_name(),
            rack=self._configuration.rack,
            directories=self._described(),
            features=SUPPORTED,
            clean_shutdown_epoch=NO_CLEAN_SHUTDOWN
            if marker is None
            else BrokerEpoch(marker.broker_epoch),
            boot_id=host.boot_id(),
            release=RELEASE,
            stored_epochs=stored_epochs,
        )
        return BrokerSession(
            self._ports.network,
            self._ports.clock,
            self._side.controller,
            self._side.source,
            registration,
            cluster_id=self._identity.cluster_id,
            applied_index=self._side.applied_index,
            store_epoch=self._store_epoch,
            node_clock=self.time,
        )


def _log_recovery(summary: RecoverySummary, *, was_clean: bool) -> None:
    log_events.info(
        "logs_recovered",
        partitions=summary.partitions,
        restored=summary.restored,
        torn_bytes=summary.torn_bytes,
        after_clean_stop=was_clean,
    )
    for failure in summary.failures:
        log_events.error("partition_stopped", error=failure)
    for orphan in summary.orphans:
        log_events.warning("orphan_directory_kept", directory=orphan)
    for stranger in summary.strangers:
        log_events.warning("strange_file_kept", path=stranger)

"""A node's part as a broker: the order of its start and its stop.

Owns what comes after what in a broker's life; `broker_graph` makes its parts. It must never want to
serve before its logs are recovered against metadata that hold its own registration and its epoch is
stored in every directory that works, nor leave the clean-shutdown marker unless everything that was
accepted is flushed.

    stored epochs → register → metadata caught up → store epoch → log recovery → unfence → …
    … → hand over → flush → marker
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from tidelog.broker.replicas.directory import LogDirectory, RecoverySummary
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.producer_ids.handler import ProducerIds
from tidelog.broker.shared.node_time import NodeTime
from tidelog.metadata.broker_reports import NO_CLEAN_SHUTDOWN, Registration
from tidelog.metadata.features import SUPPORTED
from tidelog.metadata.image.image import Image
from tidelog.metadata_quorum.port import ImageSource
from tidelog.metadata_quorum.stream.controller_client import ControllerClient
from tidelog.metadata_quorum.stream.session_client import BrokerSession
from tidelog.ports import Disk, Host, Method, Random, TaskScope
from tidelog.server.events import log as log_events
from tidelog.server.roles.broker_admission import BrokerAdmission
from tidelog.server.roles.broker_contact import ContactWatch
from tidelog.server.roles.broker_groups import BrokerGroups
from tidelog.server.roles.broker_replication import BrokerReplication
from tidelog.server.roles.broker_transactions import BrokerTransactions
from tidelog.server.roles.clock_keeper import ClockKeeper
from tidelog.server.roles.own_directories import OwnDirectories, log_gone_back
from tidelog.server.storage import format as storage_format
from tidelog.server.storage.format import CleanShutdown
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch

RELEASE: Final = "0.1.0"


class BrokerRole:
    """`bring_up` once the listeners are bound, `stop` at the end."""

    def __init__(
        self,
        *,
        disk: Disk,
        host: Host,
        random: Random,
        source: ImageSource,
        controller: ControllerClient,
        clock_keeper: ClockKeeper,
        directories: OwnDirectories,
        session: BrokerSession,
        contact_watch: ContactWatch,
        replicas: Replicas,
        replication: BrokerReplication,
        groups: BrokerGroups,
        transactions: BrokerTransactions,
        admission: BrokerAdmission,
        producer_ids: ProducerIds,
        client_methods: Mapping[str, Method],
        cluster_methods: Mapping[str, Method],
        rack: str,
        handover_ms: int,
    ) -> None:
        self._disk = disk
        self._host = host
        self._random = random
        self._source = source
        self._controller = controller
        self._clock_keeper = clock_keeper
        self._own = directories
        self.session: Final = session
        self._contact_watch = contact_watch
        self.replicas: Final = replicas
        self.replication: Final = replication
        self.groups: Final = groups
        self.transactions: Final = transactions
        self.admission: Final = admission
        self._producer_ids = producer_ids
        self.client_methods: Final = client_methods
        """What clients may ask, by full name."""
        self.cluster_methods: Final = cluster_methods
        """What other brokers may ask."""
        self._rack = rack
        self._handover_ms = handover_ms
        self._directory_tasks: list[asyncio.Task[None]] = []
        self._is_current = False
        self._is_recovered = False

    @property
    def directories(self) -> tuple[LogDirectory, ...]:
        """The data directory and every one of log_dirs."""
        return self._own.all

    @property
    def time(self) -> NodeTime:
        """What time it is for this node, and whether it may delete by it."""
        return self._clock_keeper.time

    def image(self) -> Image:
        """The metadata as this broker knows them."""
        return self._source.image()

    @property
    def is_current(self) -> bool:
        """Whether the image holds what was committed when this process registered."""
        return self._is_current

    @property
    def is_recovered(self) -> bool:
        """Whether the logs are open and their owners run."""
        return self._is_recovered

    @property
    def failures(self) -> dict[str, TidelogError]:
        """By directory, why it stopped."""
        return self._own.failures

    @property
    def full_disks(self) -> dict[str, TidelogError]:
        """By directory, what the disk said to the last write if that was that there is no room."""
        return self._own.full_disks

    @property
    def queued_bytes(self) -> int:
        """Batches between arrival and acknowledgement."""
        return self._own.queued_bytes

    async def _report_failure(self, directory: LogDirectory) -> None:
        """Tell the controller as soon as the directory stops: others are to lead what lies there.

        Whoever writes the log looks at failures as well, but now and then, and decides nothing.
        """
        await directory.wait_failed()
        self.session.report_directories(self._own.described())

    async def bring_up(self, scope: TaskScope, listeners: Mapping[str, str]) -> None:
        """Until the broker serves; what it needs later runs in the scope."""
        marker = await storage_format.read_clean_marker(self._disk)
        session = self.session
        await session.register(await self._registration(listeners, marker))
        scope.start(session.run(), name="broker session")
        scope.start(self._clock_keeper.run(), name="clock")
        await session.wait_registered()
        self._is_current = True
        log_gone_back(self.image().brokers.get(session.broker_id), self.directories)
        await storage_format.remove_clean_marker(self._disk)
        await session.store_epoch()
        summary = await self.replicas.recover()
        _log_recovery(summary, was_clean=marker is not None)
        for directory in self.directories:
            if directory.is_open:
                task = scope.start(directory.run(), name=f"directory {directory.name}")
                self._directory_tasks.append(task)
                scope.start(self._report_failure(directory), name=f"failure of {directory.name}")
        self._is_recovered = True
        session.report_directories(self._own.described())
        scope.start(self.replicas.run(), name="replicas")
        scope.start(self._producer_ids.run(), name="producer ids")
        scope.start(self._contact_watch.run(), name="contact with a controller")
        self.replication.start(scope)
        self.groups.start(scope)
        self.transactions.start(scope)
        self.admission.start(scope)
        session.want_unfence()
        await session.wait_unfenced()

    async def settle(self, version: int) -> None:
        """Until this broker serves what that version of the metadata places here."""
        if self.is_recovered:
            await self.replicas.wait_applied(version)

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, as far as there are others."""
        if not self.is_recovered or self._controller.leader() is None:
            return
        if not await self.session.shut_down(self._handover_ms):
            log_events.warning("handed_over_in_part", waited_ms=self._handover_ms)

    async def stop(self) -> None:
        """Flush what was accepted, then leave the marker."""
        if not self._is_recovered:
            return
        await self._clock_keeper.store()
        are_flushed = [await directory.stop() for directory in self.directories]
        for task in self._directory_tasks:
            await task
        if not all(are_flushed):
            # A directory that failed has lost what it had accepted.
            return
        marker = CleanShutdown(broker_epoch=self.session.epoch, boot_id=self._host.boot_id())
        try:
            await storage_format.write_clean_marker(self._disk, marker)
        except TidelogError as error:
            # Everything is flushed; without the marker the next start only looks closer.
            log_events.warning("clean_marker_not_written", error=error)

    async def _registration(
        self, listeners: Mapping[str, str], marker: CleanShutdown | None
    ) -> Registration:
        stored_epochs = await self._own.find_epochs()
        clean_epoch = NO_CLEAN_SHUTDOWN if marker is None else BrokerEpoch(marker.broker_epoch)
        return Registration(
            broker_id=self.session.broker_id,
            incarnation=self._random.uuid(),
            listeners=listeners,
            host_name=self._host.host_name(),
            rack=self._rack,
            directories=self._own.described(),
            features=SUPPORTED,
            clean_shutdown_epoch=clean_epoch,
            boot_id=self._host.boot_id(),
            release=RELEASE,
            stored_epochs=stored_epochs,
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

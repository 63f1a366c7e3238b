"""Gathers a scrape: asks every part of a node how it stands, and adds nothing to their work.

Owns which figure comes from where. Everything is read when somebody asks for it; a pass over all
replicas lets the loop turn in between, so that ten thousand of them hold nobody up.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.shared.image_counts import ImageCounts
from tidelog.broker.shared.meter import NS_PER_S, Meter
from tidelog.ports import Clock, Server, WatchedServer
from tidelog.server.events.image import RoleCounts
from tidelog.server.metrics.broker import gather_broker
from tidelog.server.metrics.description import NodeDescription, describe_node
from tidelog.server.metrics.groups import gather_groups
from tidelog.server.metrics.health import Health
from tidelog.server.metrics.metered_disk import MeteredDisk
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.roles.broker import RELEASE, BrokerRole
from tidelog.server.roles.controller import ControllerRole
from tidelog.server.roles.metadata_side import MetadataSide
from tidelog.server.settings.configuration import NodeConfiguration

TURN_NS: Final = 5_000_000
"""So long may a pass hold the loop."""


class WatchCounts(msgspec.Struct, kw_only=True):
    """What a node's watch has seen since the start; none of them ever falls."""

    stalls: int = 0
    stalled_ms: int = 0
    leader_changes: int = 0
    elections_won: int = 0


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to ask; without its parts while the node is not built yet."""

    configuration: NodeConfiguration
    clock: Clock
    meter: Meter
    health: Health
    disks: Sequence[MeteredDisk] = ()
    servers: Mapping[str, Server] = {}
    quotas: Quotas | None = None
    cluster_id: str = ""
    controller: ControllerRole | None = None
    broker: BrokerRole | None = None
    side: MetadataSide | None = None
    watched: WatchCounts = msgspec.field(default_factory=WatchCounts)
    roles: RoleCounts = msgspec.field(default_factory=RoleCounts)


class Pauses:
    """Lets the loop turn whenever a pass has taken long enough."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ns = clock.monotonic_ns()
        self.longest_ns = 0

    async def breathe(self) -> None:
        """Cheap where it is too soon."""
        taken_ns = self._clock.monotonic_ns() - self._begun_ns
        if taken_ns >= TURN_NS:
            self.longest_ns = max(self.longest_ns, taken_ns)
            await asyncio.sleep(0)
            self._begun_ns = self._clock.monotonic_ns()


class Gatherer:
    """`gather` for each scrape."""

    def __init__(self) -> None:
        self._image_counts = ImageCounts()
        self._last_ns = 0

    async def gather(self, sources: Sources) -> Scrape:
        """How the node stands now."""
        scrape = Scrape()
        begun_ns = sources.clock.monotonic_ns()
        pauses = Pauses(sources.clock)
        described = describe_node(
            sources.configuration, sources.controller, sources.broker, sources.side
        )
        self._gather_node(scrape, sources, described)
        _gather_quorum(scrape, described, sources.watched)
        await pauses.breathe()
        self._gather_controller(scrape, sources, described)
        await pauses.breathe()
        _gather_requests(scrape, sources)
        _gather_limits(scrape, sources)
        _gather_disks(scrape, sources.disks)
        if sources.broker is not None:
            _gather_records(scrape, sources.meter)
            _gather_roles(scrape, described, sources.roles)
            await gather_broker(
                scrape,
                sources.broker,
                pauses.breathe,
                per_partition=sources.configuration.metrics.per_partition,
            )
            await gather_groups(
                scrape,
                sources.broker.groups,
                sources.meter,
                sources.broker.image(),
                pauses.breathe,
            )
        self._last_ns = sources.clock.monotonic_ns() - begun_ns
        return scrape

    def _gather_node(self, scrape: Scrape, sources: Sources, described: NodeDescription) -> None:
        scrape.set(
            "tidelog_node",
            1,
            sources.cluster_id,
            str(described.node_id),
            ",".join(described.roles),
            RELEASE,
        )
        scrape.set("tidelog_node_ready", sources.health.is_serving)
        scrape.set("tidelog_node_metadata_index", described.metadata_version)
        side = sources.side
        is_known = side is not None and side.controller.leader() is not None
        scrape.set("tidelog_node_controller_known", is_known)
        scrape.set("tidelog_node_loop_stalls", sources.watched.stalls)
        scrape.set("tidelog_node_loop_stall_seconds", sources.watched.stalled_ms / 1000)
        scrape.set("tidelog_node_scrape_seconds", self._last_ns / NS_PER_S)

    def _gather_controller(
        self, scrape: Scrape, sources: Sources, described: NodeDescription
    ) -> None:
        quorum, side = described.quorum, sources.side
        if quorum is None:
            return
        scrape.set("tidelog_controller_is_active", quorum.is_active_controller)
        if not quorum.is_active_controller or side is None:
            return
        image = side.source.image()
        counts = self._image_counts.count(image)
        fenced = sum(each.is_fenced for each in image.brokers.values())
        scrape.set("tidelog_controller_brokers", fenced, "fenced")
        scrape.set("tidelog_controller_brokers", len(image.brokers) - fenced, "unfenced")
        scrape.set("tidelog_controller_topics", len(image.topics))
        scrape.set("tidelog_controller_partitions", counts.partitions)
        scrape.set("tidelog_controller_offline_partitions", counts.offline)
        scrape.set("tidelog_controller_under_replicated_partitions", counts.under_replicated)
        scrape.set("tidelog_controller_under_min_isr_partitions", counts.under_min_isr)
        scrape.set("tidelog_controller_preferred_leader_imbalance", counts.not_preferred)
        scrape.set("tidelog_controller_reassigning_partitions", counts.reassigning)


def _gather_quorum(scrape: Scrape, described: NodeDescription, watched: WatchCounts) -> None:
    quorum = described.quorum
    if quorum is None:
        return
    scrape.set("tidelog_quorum_is_leader", quorum.role == "leader")
    scrape.set("tidelog_quorum_has_leader", quorum.leader_id >= 0)
    scrape.set("tidelog_quorum_term", quorum.term)
    scrape.set("tidelog_quorum_last_index", quorum.last_index)
    scrape.set("tidelog_quorum_commit_index", quorum.commit_index)
    scrape.set("tidelog_quorum_applied_index", quorum.applied_index)
    scrape.set("tidelog_quorum_applied_lag_entries", quorum.lag)
    scrape.set("tidelog_quorum_log_start_index", quorum.log_start_index)
    scrape.set("tidelog_quorum_leader_changes", watched.leader_changes)
    scrape.set("tidelog_quorum_elections_won", watched.elections_won)
    scrape.set("tidelog_quorum_is_repairing", quorum.is_repairing)
    scrape.set("tidelog_quorum_members", quorum.voters, "voter")
    scrape.set("tidelog_quorum_members", quorum.learners, "learner")
    scrape.set("tidelog_quorum_members", quorum.observers, "observer")


def _gather_requests(scrape: Scrape, sources: Sources) -> None:
    for listener, method, figures in sources.meter:
        place = (listener, method.rpartition("/")[2])
        for code, number in figures.codes.items():
            scrape.add("tidelog_requests", number, *place, code)
        if figures.codes:
            scrape.histogram("tidelog_request_duration_seconds", figures.durations, *place)
        scrape.add("tidelog_requests_in_flight", figures.in_flight, *place)
        scrape.add("tidelog_request_bytes", figures.request_bytes, *place)
        scrape.add("tidelog_response_bytes", figures.response_bytes, *place)
        scrape.add("tidelog_slow_requests", figures.slow, *place)
    for listener, each in sources.meter.listeners.items():
        scrape.set("tidelog_listener_connections", each.connections, listener)


def _gather_limits(scrape: Scrape, sources: Sources) -> None:
    for listener, server in sources.servers.items():
        if not isinstance(server, WatchedServer):
            continue
        usage = server.usage()
        scrape.set("tidelog_listener_request_memory_bytes", usage.request_bytes, listener)
        scrape.set("tidelog_listener_answer_memory_bytes", usage.answer_bytes, listener)
        for limit, number in usage.refused.items():
            scrape.set("tidelog_listener_refusals", number, listener, limit)
    if sources.quotas is not None:
        scrape.set("tidelog_quota_delays", sources.quotas.delayed_count)
        scrape.set("tidelog_quota_refusals", sources.quotas.refused_count)


def _gather_disks(scrape: Scrape, disks: Sequence[MeteredDisk]) -> None:
    for disk in disks:
        scrape.set("tidelog_disk_open_files", disk.open_files, disk.name)
        scrape.histogram("tidelog_disk_flush_seconds", disk.flushes, disk.name)
        scrape.set("tidelog_disk_failed_flushes", disk.failed_flushes, disk.name)


def _gather_records(scrape: Scrape, meter: Meter) -> None:
    scrape.set("tidelog_produce_batches", meter.produced_batches)
    scrape.set("tidelog_produce_records", meter.produced_records)
    scrape.set("tidelog_produce_bytes", meter.produced_bytes)
    scrape.set("tidelog_fetch_bytes", meter.fetched_bytes)
    for code, number in meter.produce_refusals.items():
        scrape.set("tidelog_produce_refusals", number, code)
    for code, number in meter.fetch_refusals.items():
        scrape.set("tidelog_fetch_refusals", number, code)


def _gather_roles(scrape: Scrape, described: NodeDescription, roles: RoleCounts) -> None:
    broker = described.broker
    if broker is not None:
        scrape.set("tidelog_broker_is_fenced", broker.is_fenced)
        scrape.set("tidelog_broker_epoch", broker.epoch)
    scrape.set("tidelog_broker_fencings", roles.fencings)
    scrape.set("tidelog_replication_in_sync_shrinks", roles.in_sync_shrinks)
    scrape.set("tidelog_replication_in_sync_expands", roles.in_sync_expands)
    scrape.set("tidelog_replication_leaderships_begun", roles.leaderships_begun)
    scrape.set("tidelog_replication_leaderships_ended", roles.leaderships_ended)

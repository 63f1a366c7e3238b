"""Gathers a scrape: looks at every part of a node once, then reads the rows of the table from that.

Everything is read when somebody asks for it, and nothing is added to the work of the node; a pass
over all replicas lets the loop turn in between, so that ten thousand of them hold nobody up.
"""

import asyncio
from itertools import islice
from typing import Final

from tidelog.broker.shared.image_counts import ImageCounts
from tidelog.broker.shared.meter import NS_PER_S
from tidelog.ports import Clock
from tidelog.server.metrics.catalogue import METRICS
from tidelog.server.metrics.description import NodeDescription, describe_node
from tidelog.server.metrics.groups import GroupSums, sum_groups
from tidelog.server.metrics.replicas import ReplicaSums, sum_replicas
from tidelog.server.metrics.scrape import Scrape
from tidelog.server.metrics.seen import ClusterSums, Seen
from tidelog.server.metrics.sources import Sources
from tidelog.server.metrics.transactions import TransactionSums, sum_transactions

TURN_NS: Final = 5_000_000
"""So long may a pass hold the loop."""
SAMPLES_A_LOOK: Final = 500
"""After so many it is looked whether the loop should turn."""


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
        begun_ns = sources.clock.monotonic_ns()
        pauses = Pauses(sources.clock)
        seen, scrape = await self._look(sources, pauses), Scrape()
        for name, metric in METRICS.items():
            samples = metric.read.samples(seen)
            while some := list(islice(samples, SAMPLES_A_LOOK)):
                scrape.fill(name, some)
                await pauses.breathe()
        self._last_ns = sources.clock.monotonic_ns() - begun_ns
        return scrape

    async def _look(self, sources: Sources, pauses: Pauses) -> Seen:
        described = describe_node(
            sources.configuration, sources.controller, sources.broker, sources.side
        )
        await pauses.breathe()
        cluster = self._sum_cluster(sources, described)
        await pauses.breathe()
        replicas: ReplicaSums | None = None
        groups: GroupSums | None = None
        transactions: TransactionSums | None = None
        broker = sources.broker
        if broker is not None:
            if broker.is_recovered:
                per_partition = sources.configuration.metrics.per_partition
                replicas = await sum_replicas(broker, pauses.breathe, per_partition=per_partition)
            groups = await sum_groups(broker.groups, broker.image(), pauses.breathe)
            transactions = await sum_transactions(
                broker.transactions.coordinators.led(), broker.time.wall_ms(), pauses.breathe
            )
        return Seen(
            sources=sources,
            described=described,
            cluster=cluster,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            last_scrape_seconds=self._last_ns / NS_PER_S,
        )

    def _sum_cluster(self, sources: Sources, described: NodeDescription) -> ClusterSums | None:
        quorum, side = described.quorum, sources.side
        if quorum is None or not quorum.is_active_controller or side is None:
            return None
        image = side.source.image()
        return ClusterSums(
            image=image,
            partitions=self._image_counts.count(image),
            fenced=sum(each.is_fenced for each in image.brokers.values()),
        )

"""The end of a run of the cluster suite: is everything alive again, and is everything there.

After the heal, within a bound: every node is up and unfenced, every in-sync set is full, no
reassignment is under way, and every partition takes a batch and serves it; nobody asks for any of
that. Then every partition is read from its start to its end.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.chaos.checkers import Acks
from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.cluster_reader import ClusterReader
from tidelog.chaos.workloads.single_shot import send_once
from tidelog.metadata.image.image import TopicImage
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

if TYPE_CHECKING:
    from tidelog.chaos.sim.cluster.suite import ClusterRun

_MS: Final = 1_000_000
_WHOLE_NS: Final = 40_000 * _MS
_LOOK_NS: Final = 200 * _MS
_DRAIN_NS: Final = 60_000 * _MS


class ClusterEnd:
    """Of one run."""

    def __init__(self, run: "ClusterRun") -> None:
        self._run = run
        self._world = run.world

    async def play(self) -> None:
        """Stops at the first thing that does not work."""
        run, loop = self._run, self._world.loop
        process = self._world.machine("judge").start("judge", _wait)
        client = run.client(process.ports, "judge")
        until_ns = loop.now_ns + _WHOLE_NS
        while lack := self._what_lacks():
            if loop.now_ns >= until_ns:
                run.violations.append(f"not_alive: {lack}")
                return
            await run.go(_LOOK_NS)
            if run.is_over():
                return
        run.stop_clients()
        reader = ClusterReader(client)
        work = process.start_task(self._probe(client, reader), "probe")
        until_ns = loop.now_ns + _DRAIN_NS
        while not work.done() and not run.is_over():
            if loop.now_ns >= until_ns:
                run.violations.append("not_alive: the last batches were not taken and read in time")
                return
            await run.go(_LOOK_NS)
        if not run.is_over():
            work.result()
            run.watch.check_whole(is_final=True)

    def _what_lacks(self) -> str:
        """Of a healed cluster; empty: it is whole."""
        image = self._run.watch.board.newest
        for node in self._run.nodes:
            if not node.is_member:
                continue
            if not node.is_alive or node.living is None or not node.living.is_ready:
                return f"{node.name} is not up"
        for broker in image.brokers.values():
            if broker.is_fenced or broker.is_shutting_down:
                return f"broker {broker.broker_id} is fenced"
        for topic in image.topics.values():
            for partition in topic.partitions:
                name = f"{topic.name}-{partition.partition}"
                if partition.leader_id < 0:
                    return f"{name} has no leader"
                if partition.is_reassigning:
                    return f"{name} is being reassigned"
                if len(partition.in_sync_replicas) < len(partition.replicas):
                    return f"{name} has {partition.in_sync_replicas} of {partition.replicas}"
        return ""

    async def _probe(self, client: ClusterClient, reader: ClusterReader) -> None:
        for topic_image in list(self._run.watch.board.newest.topics.values()):
            if topic_image.is_internal:
                continue
            topic = await self._find(client, topic_image)
            for partition in range(topic.partition_count):
                await self._take(client, topic, partition)
                await self._drain(client, reader, topic, partition)

    async def _find(self, client: ClusterClient, wanted: TopicImage) -> Incarnation:
        """As it is now: a broker that was away answers with the topic that had the name before."""
        while True:
            topic = await client.refresh(wanted.name)
            if topic is not None and topic.topic_id == wanted.topic_id:
                return topic
            await client.ports.clock.sleep(100)

    async def _take(self, client: ClusterClient, topic: Incarnation, partition: int) -> None:
        while True:
            outcome = await send_once(client, topic, partition, acks=Acks.ALL, timeout_ms=5_000)
            if outcome is Outcome.ACKNOWLEDGED:
                return
            await client.ports.clock.sleep(100)

    async def _drain(
        self, client: ClusterClient, reader: ClusterReader, topic: Incarnation, partition: int
    ) -> None:
        reader.begin_session(topic.key(partition))
        while True:
            found = await reader.read(topic, partition, is_final=True)
            if found == 0 and reader.position(topic, partition) >= self._kept(topic, partition):
                return
            # Who leads may have come to it just now, and not know yet what was committed before.
            if found <= 0:
                await client.ports.clock.sleep(100)

    def _kept(self, topic: Incarnation, partition: int) -> int:
        """Up to where records were committed, and have to be there."""
        key = PartitionKey(TopicId(topic.topic_id), PartitionId(partition))
        board = self._run.watch.board.partitions[key]
        return board.committed if board.loss is None else 0


async def _wait(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()

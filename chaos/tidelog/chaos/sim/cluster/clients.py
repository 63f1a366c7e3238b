"""The clients of the suite: producers of every acks, with and without sequences, and readers."""

import asyncio
from typing import TYPE_CHECKING

from tidelog.chaos.checkers import Acks
from tidelog.chaos.sim.cluster.operator import KEPT_TOPIC
from tidelog.chaos.sim.world.process import Process, SimulatedPorts
from tidelog.chaos.workloads.cluster_client import ClusterClient, Incarnation
from tidelog.chaos.workloads.cluster_reader import ClusterReader
from tidelog.chaos.workloads.engine_producer import EngineProducer
from tidelog.chaos.workloads.engine_reader import EngineReader
from tidelog.chaos.workloads.sequenced_producer import SequencedProducer
from tidelog.chaos.workloads.single_shot import send_once
from tidelog.chaos.workloads.stranger import Stranger
from tidelog.ports import TaskScope

if TYPE_CHECKING:
    from tidelog.chaos.sim.cluster.suite import ClusterRun

_WORKERS = 2
_UNFINISHED_MAX = 40
_DELIVERY_MS = (3_000, 12_000)
_INQUIRERS = 4
"""One of them may wait for a broker that stands still."""
_INQUIRY_MS = 120


def start_producer(run: "ClusterRun", name: str, acks: Acks) -> Process:
    """Several runs at once, each into a partition of its own; now and then a single shot."""

    async def live(ports: SimulatedPorts) -> None:
        client = run.client(ports, name)
        delivery_ms = _DELIVERY_MS[0] + client.below(_DELIVERY_MS[1])
        producer = SequencedProducer(client, acks, delivery_ms=delivery_ms)
        run.producers.append(producer)
        async with TaskScope() as scope:
            for number in range(_WORKERS):
                scope.start(_produce(run, client, producer), name=f"worker {number}")
            await asyncio.Event().wait()

    return run.world.machine(name).start(name, live)


async def _produce(run: "ClusterRun", client: ClusterClient, producer: SequencedProducer) -> None:
    while True:
        await client.ports.clock.sleep(client.below(900))
        topic = await some_topic(run, client)
        if topic is None:
            continue
        partition = client.below(topic.partition_count)
        if client.below(6) == 0:
            acks = (Acks.ALL, Acks.LEADER, Acks.NONE)[client.below(3)]
            await send_once(client, topic, partition, acks=acks, timeout_ms=2_000)
            continue
        lane = producer.lane(topic, partition)
        if not lane.is_busy and not lane.is_gone:
            await producer.send_run(lane, 1 + client.below(8))


def start_engine(run: "ClusterRun", name: str, acks: Acks) -> Process:
    """A producer of the SDK: its core decides what is sent where, and sent again."""

    async def live(ports: SimulatedPorts) -> None:
        client = run.client(ports, name)
        delivery_ms = _DELIVERY_MS[0] + client.below(_DELIVERY_MS[1])
        producer = EngineProducer(
            client,
            acks,
            bootstrap=tuple(node.address for node in run.nodes),
            delivery_ms=delivery_ms,
        )
        async with TaskScope() as scope:
            scope.start(producer.run(), name="engine")
            while True:
                await ports.clock.sleep(client.below(900))
                names = list(run.topics())
                route = producer.route(names[client.below(len(names))]) if names else None
                if route is None or producer.unfinished > _UNFINISHED_MAX:
                    continue
                for _ in range(1 + client.below(8)):
                    if not producer.send(route, client.below(route.partition_count)):
                        break

    return run.world.machine(name).start(name, live)


def start_reader(run: "ClusterRun", name: str) -> Process:
    """Reads here and there, each partition from its start on, of leaders or near by."""

    async def live(ports: SimulatedPorts) -> None:
        client = run.client(ports, name)
        racks = ("", *(node.rack for node in run.plan.nodes))
        reader = ClusterReader(client, rack=racks[client.below(len(racks))])
        while True:
            await ports.clock.sleep(1 + client.below(400))
            topic = await some_topic(run, client)
            if topic is not None:
                await reader.read(topic, client.below(topic.partition_count))

    return run.world.machine(name).start(name, live)


def start_engine_reader(run: "ClusterRun", name: str) -> Process:
    """A consumer of the SDK on the topic that is never deleted."""

    async def live(ports: SimulatedPorts) -> None:
        client = run.client(ports, name)
        racks = ("", *(node.rack for node in run.plan.nodes))
        while KEPT_TOPIC not in run.topics():
            await ports.clock.sleep(100)
        reader = EngineReader(
            client,
            KEPT_TOPIC,
            bootstrap=tuple(node.address for node in run.nodes),
            rack=racks[client.below(len(racks))],
        )
        await reader.run()

    return run.world.machine(name).start(name, live)


def start_stranger(run: "ClusterRun", name: str) -> Process:
    """Asks any broker for what was acknowledged, above all one that was stopped and goes on."""

    async def live(ports: SimulatedPorts) -> None:
        client = run.client(ports, name)
        stranger = Stranger(client, run.leads, kept_topic=KEPT_TOPIC)
        async with TaskScope() as scope:
            for number in range(_INQUIRERS):
                scope.start(_inquire(run, client, stranger), name=f"inquirer {number}")
            await asyncio.Event().wait()

    return run.world.machine(name).start(name, live)


async def _inquire(run: "ClusterRun", client: ClusterClient, stranger: Stranger) -> None:
    while True:
        await client.ports.clock.sleep(1 + client.below(_INQUIRY_MS))
        topic = await some_topic(run, client)
        if topic is None:
            continue
        node = run.nodes[client.below(len(run.nodes))]
        if run.troubles.resumed is not None and client.below(2):
            node = run.troubles.resumed
        await stranger.ask(node.address, topic)


async def some_topic(run: "ClusterRun", client: ClusterClient) -> Incarnation | None:
    """One of those that there are."""
    names = list(run.topics())
    return await client.find_topic(names[client.below(len(names))]) if names else None

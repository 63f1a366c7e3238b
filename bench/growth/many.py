"""What replicated partitions cost: three nodes, every partition on each of them.

Owns the slope from few to many: nothing to do, one answer of metadata, and a round in which ten
partitions change. What is printed must follow from what a request touches, not from what is there.
"""

import time
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.growth.weight import KIB, MIB, Scales, Spent, memory_bytes
from bench.systems import Tidelog
from bench.table import Table, count, median, percentile
from tidelog.client import Producer
from tidelog.client.sync.connections import Connections
from tidelog.client.tls.security import Security
from tidelog.client.wire import calls as wire

NODES: Final = 3
CHANGED: Final = 10
TOPIC_PARTITIONS_MAX: Final = 1_000
SETTLE_SECONDS: Final = 5.0
SPAN_SECONDS: Final = 10.0
ROUNDS: Final = 100
CALLS: Final = 15
CALL_MS: Final = 30_000
ACKNOWLEDGE_SECONDS_MAX: Final = 60.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured with so many partitions."""

    partitions: int
    created_seconds: float
    idle: Spent
    node_bytes: int
    rounds: Spent
    round_ms: list[float]
    metadata_ms: dict[str, float]
    metadata_bytes: dict[str, int]
    topic_ms: float


class Many:
    """One cluster that is given more and more partitions."""

    def __init__(self, cluster: Tidelog) -> None:
        self._cluster = cluster
        self._topics: dict[str, int] = {}
        self._created = 0

    def step(self, partitions: int) -> Step:
        """Grow to so many, let it settle, measure."""
        created_seconds = self._grow(partitions)
        time.sleep(SETTLE_SECONDS)
        scales = Scales(self._cluster.pids)
        time.sleep(SPAN_SECONDS)
        idle = scales.read()
        rounds, round_ms = self._rounds()
        smallest = min(self._topics, key=self._topics.__getitem__)
        asked = {"all": wire.metadata_request((), all_topics=True)}
        asked["ten"] = wire.metadata_request([smallest])
        answers = {name: self._ask(request) for name, request in asked.items()}
        return Step(
            partitions=partitions,
            created_seconds=created_seconds,
            idle=idle,
            node_bytes=max(memory_bytes(pid) for pid in self._cluster.pids),
            rounds=rounds,
            round_ms=round_ms,
            metadata_ms={name: found[0] for name, found in answers.items()},
            metadata_bytes={name: found[1] for name, found in answers.items()},
            topic_ms=self._topic_ms(),
        )

    def _grow(self, partitions: int) -> float:
        begin = time.perf_counter()
        while (missing := partitions - sum(self._topics.values())) > 0:
            name = f"many-{len(self._topics)}"
            self._topics[name] = min(missing, TOPIC_PARTITIONS_MAX)
            self._cluster.create_topic(name, {}, self._topics[name])
        return time.perf_counter() - begin

    def _rounds(self) -> tuple[Spent, list[float]]:
        """A record to each of ten partitions, acknowledged by all replicas, again and again."""
        places = [(name, number) for name, size in self._topics.items() for number in range(size)]
        chosen = places[:: max(1, len(places) // CHANGED)][:CHANGED]
        took_ms: list[float] = []
        with Producer(bootstrap_servers=self._cluster.bootstrap, linger_ms=0) as producer:
            self._round(producer, chosen)
            scales = Scales(self._cluster.pids)
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                self._round(producer, chosen)
                took_ms.append((time.perf_counter() - begin) * 1e3)
            return scales.read(), took_ms

    def _round(self, producer: Producer, places: list[tuple[str, int]]) -> None:
        sent = [producer.send(name, b"changed", partition=number) for name, number in places]
        for each in sent:
            each.get(timeout=ACKNOWLEDGE_SECONDS_MAX)

    def _ask(self, request: bytes) -> tuple[float, int]:
        """Milliseconds and bytes of one answer of metadata."""
        address = self._cluster.bootstrap.split(",")[0]
        connections = Connections("bench", Security())
        took_ms: list[float] = []
        size_bytes = 0
        for _ in range(CALLS):
            begin = time.perf_counter()
            answer = connections.call(address, wire.GET_METADATA, request, CALL_MS)
            took_ms.append((time.perf_counter() - begin) * 1e3)
            size_bytes = len(answer)
        connections.close()
        return median(took_ms), size_bytes

    def _topic_ms(self) -> float:
        """A topic of ten partitions comes and goes: the metadata of ten partitions change."""
        took_ms: list[float] = []
        for _ in range(CALLS):
            self._created += 1
            name = f"passing-{self._created}"
            begin = time.perf_counter()
            self._cluster.create_topic(name, {}, CHANGED)
            took_ms.append((time.perf_counter() - begin) * 1e3)
            self._cluster.delete_topic(name)
        return median(took_ms)


def sizes(most: int) -> list[int]:
    """Ten, a tenth of the most, the most."""
    return sorted({CHANGED, max(CHANGED, most // 10), most})


def _net(step: Step) -> tuple[list[float], float]:
    """A round's CPU of each node in ms, and its bytes on loopback, without what idling costs."""
    spent, idle = step.rounds, step.idle
    share = spent.seconds / idle.seconds
    cpu_ms = [
        max(0.0, used - rest * share) / ROUNDS * 1e3
        for used, rest in zip(spent.cpu_seconds, idle.cpu_seconds, strict=True)
    ]
    loopback = max(0.0, spent.loopback_bytes - idle.loopback_bytes * share) / ROUNDS
    return cpu_ms, loopback


def show(most: int) -> None:
    """The slope, up to so many partitions."""
    with ExitStack() as stack:
        many = Many(Tidelog(NODES, stack))
        steps = [many.step(partitions) for partitions in sizes(most)]
    standing = Table(
        f"Partitions with {NODES} replicas on {NODES} nodes, nothing to do: {SPAN_SECONDS:.0f} s",
        (
            *("partitions", "created in s", "CPU % of a core, a node", "loopback KiB/s"),
            *("MiB, largest node", "KiB a replica more"),
        ),
    )
    least = steps[0]
    for step in steps:
        more = (step.node_bytes - least.node_bytes) / max(1, step.partitions - least.partitions)
        standing.add(
            *(count(step.partitions), f"{step.created_seconds:.1f}"),
            f"{step.idle.share / NODES * 100:.1f}",
            f"{step.idle.loopback_bytes / step.idle.seconds / KIB:.1f}",
            *(f"{step.node_bytes / MIB:.0f}", f"{more / KIB:.1f}" if step is not least else "-"),
        )
    standing.show()
    changing = Table(
        f"{CHANGED} of them change: a record each, acks=all, {ROUNDS} rounds; idle cost taken off",
        (
            *("partitions", "round p50 ms", "p99 ms", "CPU ms a round, all nodes"),
            *("loopback KiB a round", "÷ smallest"),
        ),
    )
    base = sum(_net(least)[0])
    for step in steps:
        cpu_ms, loopback = _net(step)
        changing.add(
            *(count(step.partitions), f"{median(step.round_ms):.1f}"),
            *(f"{percentile(step.round_ms, 0.99):.1f}", f"{sum(cpu_ms):.1f}"),
            *(f"{loopback / KIB:.1f}", f"{sum(cpu_ms) / base:.2f}" if base else "-"),
        )
    changing.show()
    answers = Table(
        "Metadata: one answer, and a topic of ten partitions created",
        (
            *("partitions", "all: ms", "all: KiB", "one topic: ms", "one topic: KiB"),
            "create ten partitions ms",
        ),
    )
    for step in steps:
        answers.add(
            count(step.partitions),
            f"{step.metadata_ms['all']:.2f}",
            f"{step.metadata_bytes['all'] / KIB:.1f}",
            f"{step.metadata_ms['ten']:.2f}",
            f"{step.metadata_bytes['ten'] / KIB:.1f}",
            f"{step.topic_ms:.1f}",
        )
    answers.show()

"""Bulk lines at one and at three replicas: Tidelog's engine, the bare chain, Kafka's own tools.

Owns the list of lines of one cluster size and the pairs that are compared. Every line fills a topic
of its own and deletes it; what is read is filled once. A pair is of equal durability: Tidelog's
flush=sync stands beside flush.messages=1, flush=replicated beside a Kafka that does not flush, and
with acks=1 nobody waits for a disk.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import msgspec

from bench import chain_nodes
from bench.chain_nodes import Chain, Disk
from bench.lines import FLUSHED, KEY_BYTES, UNFLUSHED, run_role
from bench.peers.kafka import tools
from bench.processes import python_child
from bench.settings import BATCH_BYTES, LINGER_MS, PARTITIONS, RECORD_BYTES, Acks, Load
from bench.systems import System
from bench.table import Throughput
from bench.turns import Line, Pair
from bench.window import measure

STORED: Final = "bulk-read"
CLIENTS: Final = (1, 3)
CHAIN_AIM: Final = 0.5
CHAIN_DISKS: Final[Mapping[Disk, str]] = {
    "none": "no disk",
    "written": "written, no flush",
    "flushed": "fdatasync, group commit",
}
KAFKA_AIM: Final = 1.5
KAFKA_PRODUCED_PER_SECOND: Final = 400_000
KAFKA_CONSUMED_PER_SECOND: Final = 2_500_000
"""Near what its tools do here: they are given a count, and a line should take `seconds`."""
JVM_TOOL_TIMES: Final = 2
"""Kafka's tools get more records: a cold JVM is not what its users run."""
SENT_PER_SECOND: Final = 400_000
DELETED_AT_ONCE: Final[Mapping[str, str]] = {"file.delete.delay.ms": "0"}
SYNC: Final = "sync"
REPLICATED: Final = "replicated"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What tells two produce lines of one system and size apart."""

    clients: int
    acks: Acks
    flush: str


def settings() -> list[Setting]:
    """Tidelog's produce lines."""
    return [
        Setting(clients=clients, acks=acks, flush=flush)
        for clients in CLIENTS
        for acks in ("1", "all")
        for flush in (REPLICATED, SYNC)
    ]


def produce_key(system: str, setting: Setting) -> str:
    """Of a produce line."""
    return f"{system}-{setting.acks}-{setting.flush}-{setting.clients}"


def together(calls: Sequence[Callable[[], Throughput]]) -> Throughput:
    """Tools that time themselves, begun at once: their rates added up."""
    with ThreadPoolExecutor(len(calls)) as pool:
        done = [each.result() for each in [pool.submit(call) for call in calls]]
    records = sum(each.records for each in done)
    rate = sum(each.records_per_second for each in done)
    return Throughput(records=records, record_bytes=done[0].record_bytes, seconds=records / rate)


def _load(bootstrap: str, topic: str, acks: Acks) -> str:
    load = Load(bootstrap=bootstrap, topic=topic, records=0, acks=acks)
    return msgspec.json.encode(load).decode()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One of the SDK's bulk calls."""

    key: str
    role: str
    name: str
    record: str = str(RECORD_BYTES)


CALLS: Final = (
    Call(key="tidelog-batch", role="send-batch", name="send_batch()"),
    Call(
        key="tidelog-keyed",
        role="send-keyed",
        name="send_batch()",
        record=f"key {KEY_BYTES} + {RECORD_BYTES}",
    ),
    Call(key="tidelog-arrow", role="send-arrow", name="send_arrow()"),
)
READS: Final = (
    Call(key="tidelog-read", role="consume", name="poll_batches()"),
    Call(key="tidelog-table", role="poll-arrow", name="poll_arrow()"),
)


class TidelogLines:
    """Through the engine, in sealed batches; and record by record beside it."""

    def __init__(self, system: System, seconds: float) -> None:
        self._system = system
        self._seconds = seconds

    def fill(self) -> None:
        """What consume lines read."""
        self._system.create_topic(STORED, {"flush": REPLICATED}, PARTITIONS)
        self._bulk("produce", STORED, "1", 1, self._seconds)

    def lines(self) -> list[Line]:
        sends = [self._send(acks) for acks in ("1", "all")]
        calls = [
            self._produce(setting, call)
            for call in CALLS
            for setting in settings()
            if (setting.acks == "all") == (setting.flush == SYNC)
        ]
        produce = [self._produce(setting) for setting in settings()]
        consume = [self._consume(clients, call) for call in READS for clients in CLIENTS]
        return [*sends, *calls, *produce, *consume]

    def _bulk(
        self,
        role: str,
        topic: str,
        acks: Acks,
        clients: int,
        seconds: float,
        module: str = "bench.opaque",
    ) -> Throughput:
        load = _load(self._system.bootstrap, topic, acks)
        with ExitStack() as stack:
            children = [
                stack.enter_context(python_child(module, role, load)) for _ in range(clients)
            ]
            return measure(children, seconds)

    def _in_topic(self, name: str, flush: str, run: Callable[[], Throughput]) -> Throughput:
        self._system.create_topic(name, {"flush": flush}, PARTITIONS)
        try:
            return run()
        finally:
            self._system.delete_topic(name)

    def _produce(self, setting: Setting, call: Call | None = None) -> Line:
        key = produce_key("tidelog" if call is None else call.key, setting)
        role, module = ("produce", "bench.opaque") if call is None else (call.role, "bench.bulk")

        def run(repetition: int) -> Throughput:
            name = f"{key}-{repetition}"
            acks, clients = setting.acks, setting.clients
            return self._in_topic(
                name,
                setting.flush,
                lambda: self._bulk(role, name, acks, clients, self._seconds, module),
            )

        return Line(
            key=key,
            direction="produce",
            client="Tidelog engine" if call is None else f"Tidelog {call.name}",
            replicas=self._system.nodes,
            clients=setting.clients,
            acks=setting.acks,
            flush=setting.flush,
            record=str(RECORD_BYTES) if call is None else call.record,
            run=run,
        )

    def _send(self, acks: Acks) -> Line:
        key = f"tidelog-send-{acks}"
        records = int(SENT_PER_SECOND * self._seconds)

        def run(repetition: int) -> Throughput:
            name = f"{key}-{repetition}"
            load = Load(bootstrap=self._system.bootstrap, topic=name, records=records, acks=acks)
            return self._in_topic(name, SYNC, lambda: run_role("tidelog-produce", load, Throughput))

        return Line(
            key=key,
            direction="produce",
            client="Tidelog send()",
            replicas=self._system.nodes,
            acks=acks,
            flush=SYNC,
            run=run,
        )

    def _consume(self, clients: int, call: Call) -> Line:
        module = "bench.opaque" if call.role == "consume" else "bench.bulk"
        return Line(
            key=f"{call.key}-{clients}",
            direction="consume",
            client=f"Tidelog {call.name}",
            replicas=self._system.nodes,
            clients=clients,
            run=lambda _: self._bulk(call.role, STORED, "all", clients, self._seconds, module),
        )


class KafkaLines:
    """ProducerPerformance and ConsumerPerformance."""

    def __init__(self, system: System, seconds: float) -> None:
        self._system = system
        self._produced = int(KAFKA_PRODUCED_PER_SECOND * seconds * JVM_TOOL_TIMES)
        self._consumed = int(KAFKA_CONSUMED_PER_SECOND * seconds)

    def fill(self) -> None:
        """What consume lines read."""
        self._system.create_topic(STORED, UNFLUSHED, PARTITIONS)
        self._perform(STORED, "1", self._consumed)

    def lines(self) -> list[Line]:
        """With acks=1 a Kafka that flushes stands alone: nobody else's acks=1 waits for a disk. At
        one replica its acks=all without a flush is its acks=1.
        """
        produce = [
            self._produce(each)
            for each in settings()
            if not (each.acks == "1" and each.flush == SYNC and each.clients > 1)
            and not (self._system.nodes == 1 and each.acks == "all" and each.flush == REPLICATED)
        ]
        return [*produce, *(self._consume(clients) for clients in CLIENTS)]

    def _perform(self, topic: str, acks: Acks, records: int) -> Throughput:
        given = {"acks": acks, "batch.size": str(BATCH_BYTES), "linger.ms": str(LINGER_MS)}
        return tools.producer_performance(
            self._system.bootstrap, topic, records, RECORD_BYTES, given
        )

    def _produce(self, setting: Setting) -> Line:
        key = produce_key("kafka", setting)
        is_flushed = setting.flush == SYNC

        def run(repetition: int) -> Throughput:
            name = f"{key}-{repetition}"
            config = {**(FLUSHED if is_flushed else UNFLUSHED), **DELETED_AT_ONCE}
            self._system.create_topic(name, config, PARTITIONS)
            each = self._produced // setting.clients
            try:
                return together([lambda: self._perform(name, setting.acks, each)] * setting.clients)
            finally:
                self._system.delete_topic(name)

        return Line(
            key=key,
            direction="produce",
            client="Kafka ProducerPerformance",
            replicas=self._system.nodes,
            clients=setting.clients,
            acks=setting.acks,
            flush="flush.messages=1" if is_flushed else "none",
            run=run,
        )

    def _consume(self, clients: int) -> Line:
        def one() -> Throughput:
            return tools.consumer_performance(
                self._system.bootstrap,
                STORED,
                self._consumed,
                RECORD_BYTES,
                is_join_counted=False,
            )

        return Line(
            key=f"kafka-read-{clients}",
            direction="consume",
            client="Kafka ConsumerPerformance, without join",
            replicas=self._system.nodes,
            clients=clients,
            run=lambda _: together([one] * clients),
        )


def chain_lines(nodes: int, seconds: float) -> list[Line]:
    """What gRPC alone moves through the same hops, and what it moves where each node also writes
    what it is sent to a file, as a log has to; one node has nobody to wait for."""
    waiting_for: tuple[Acks, ...] = ("all", "1") if nodes > 1 else ("all",)
    disks: tuple[Disk, ...] = ("none", "written")
    chains = [Chain(nodes=nodes, acks=acks, disk=disk) for acks in waiting_for for disk in disks]
    chains.append(Chain(nodes=nodes, disk="flushed"))

    def line(chain: Chain, role: str, clients: int) -> Line:
        is_fetch = role == "fetch"
        kind = chain_kind(chain.acks, chain.disk)
        read, source = ("read", "") if chain.disk == "none" else ("stored", " from a file")
        return Line(
            key=f"bare-{read if is_fetch else kind}-{clients}",
            direction="consume" if is_fetch else "produce",
            client=f"bare gRPC chain, {role}{source if is_fetch else ''}",
            replicas=nodes,
            clients=clients,
            acks="-" if is_fetch else chain.acks,
            flush="-" if is_fetch else CHAIN_DISKS[chain.disk],
            record="raw bytes",
            run=lambda _: chain_nodes.throughput(chain, role, clients, seconds),
        )

    return [
        *(line(chain, "produce", clients) for chain in chains for clients in CLIENTS),
        *(line(Chain(nodes=nodes, disk=disk), "fetch", each) for disk in disks for each in CLIENTS),
    ]


def chain_kind(acks: Acks, disk: Disk) -> str:
    """How its produce lines are told apart."""
    kinds = {"none": f"acks-{acks}", "written": f"written-{acks}", "flushed": "flushed"}
    return kinds[disk]


def pairs(nodes: int) -> list[Pair]:
    """Of each of our lines: the chain's with the same hops, and Kafka's."""
    found: list[Pair] = []
    for setting in settings():
        # One replica alone waits for its own disk, whatever the topic's flush says.
        is_flushed = setting.acks == "all" and (setting.flush == SYNC or nodes == 1)
        acks: Acks = setting.acks if nodes > 1 else "all"
        disks: tuple[Disk, ...] = ("flushed",) if is_flushed else ("none", "written")
        chains = [f"bare-{chain_kind(acks, disk)}-{setting.clients}" for disk in disks]
        peer = msgspec.structs.replace(setting, flush=SYNC if is_flushed else REPLICATED)
        # A call is beside the lines of its own durability only.
        has_calls = (setting.acks == "all") == (setting.flush == SYNC)
        systems = ["tidelog", *(call.key for call in CALLS if has_calls)]
        for ours in (produce_key(system, setting) for system in systems):
            found += [Pair(ours=ours, theirs=chain, aim=CHAIN_AIM) for chain in chains]
            found.append(Pair(ours=ours, theirs=produce_key("kafka", peer), aim=KAFKA_AIM))
    for acks in ("1", "all"):
        peer = Setting(clients=1, acks=acks, flush=SYNC if acks == "all" else REPLICATED)
        found.append(
            Pair(ours=f"tidelog-send-{acks}", theirs=produce_key("kafka", peer), aim=KAFKA_AIM)
        )
    for clients in CLIENTS:
        for ours in (f"{call.key}-{clients}" for call in READS):
            for kind in ("read", "stored"):
                found.append(Pair(ours=ours, theirs=f"bare-{kind}-{clients}", aim=CHAIN_AIM))
            found.append(Pair(ours=ours, theirs=f"kafka-read-{clients}", aim=KAFKA_AIM))
    return found


def common(nodes: int) -> str:
    """What all lines share."""
    return (
        f"{nodes} node{'s' if nodes > 1 else ''}, {nodes} replica{'s' if nodes > 1 else ''}, "
        f"{PARTITIONS} partitions, batch {BATCH_BYTES // 1024} KiB, no compression"
    )

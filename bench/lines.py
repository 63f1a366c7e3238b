"""The lines of a run: which client does what, under which settings, against which system.

Owns the list and the pairs that are compared. Every line states replicas, acks, flush, batch and
record size; a pair names two lines of equal durability. It must never pair a flushed line with an
unflushed one.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

import msgspec

from bench import chains
from bench.chain import Moved
from bench.peers.kafka import tools
from bench.processes import python_child
from bench.settings import BATCH_BYTES, LINGER_MS, PARTITIONS, RECORD_BYTES, Acks, Load
from bench.table import Throughput
from bench.turns import Line, Pair
from bench.window import ROLE_SECONDS_MAX, timed_together

CLIENTS: Final = (1, 3)
JVM_TOOL_TIMES: Final = 3
"""Kafka's tools get more records: a cold JVM is not what its users run."""
SLOW_CLIENT_SHARE: Final = 20
"""kafka-python gets a twentieth of the records: enough for a rate, and it ends in time."""
CHAIN_MESSAGES: Final = 2000
KEY_BYTES: Final = 16
UNFLUSHED: Final[Mapping[str, str]] = {}
FLUSHED: Final[Mapping[str, str]] = {"flush.messages": "1"}
Result = TypeVar("Result", bound=msgspec.Struct)


def run_role(role: str, load: Load, kind: type[Result]) -> Result:
    """One client loop in a process of its own."""
    with python_child("bench.clients", role, msgspec.json.encode(load).decode()) as child:
        return child.result(kind, timeout_seconds=ROLE_SECONDS_MAX)


def run_clients(role: str, load: Load) -> Throughput:
    """As many client loops as the load says, a process each, let go at once."""
    if load.clients == 1:
        return run_role(role, load, Throughput)
    text = msgspec.json.encode(load).decode()
    with ExitStack() as stack:
        children = [
            stack.enter_context(python_child("bench.clients", role, text))
            for _ in range(load.clients)
        ]
        return timed_together(children)


def of_clients(key: str, clients: int) -> str:
    """The key of a line with so many clients."""
    return key if clients == 1 else f"{key}-by-{clients}"


def topic(key: str, repetition: int) -> str:
    """Each line of each repetition fills a topic of its own."""
    return f"{key}-{repetition}"


class Client:
    """One Python client against one node: its lines differ in a few settings only."""

    def __init__(self, name: str, bootstrap: str, records: int) -> None:
        self._name = name
        self._bootstrap = bootstrap
        self._records = records

    def produce(
        self,
        key: str,
        role: str,
        acks: Acks,
        flush: str,
        *,
        creates: Mapping[str, str] = UNFLUSHED,
        key_bytes: int = 0,
        call: str = "send()",
        clients: int = 1,
    ) -> Line:
        key = of_clients(key, clients)

        def run(repetition: int) -> Throughput:
            load = Load(
                bootstrap=self._bootstrap,
                topic=topic(key, repetition),
                records=self._records // clients,
                acks=acks,
                key_bytes=key_bytes,
                clients=clients,
            )
            return run_clients(role, load)

        return Line(
            key=key,
            direction="produce",
            client=f"{self._name} {call}",
            clients=clients,
            acks=acks,
            flush=flush,
            record=f"key {key_bytes} + {RECORD_BYTES}" if key_bytes else str(RECORD_BYTES),
            run=run,
            creates=creates,
        )

    def consume(self, key: str, role: str, call: str, reads: str, clients: int = 1) -> Line:
        """`reads` is the producing line whose topic it reads, each client from the beginning."""

        def run(repetition: int) -> Throughput:
            load = Load(
                bootstrap=self._bootstrap,
                topic=topic(reads, repetition),
                records=self._records // clients,
                clients=clients,
            )
            return run_clients(role, load)

        return Line(
            key=of_clients(key, clients),
            direction="consume",
            client=f"{self._name} {call}",
            clients=clients,
            run=run,
        )


def tidelog_lines(bootstrap: str, records: int) -> list[Line]:
    """Tidelog through its SDK, record by record and by lists."""
    sdk = Client("Tidelog", bootstrap, records)
    after, before = "after the answer", "before the answer"
    role, bulk, call = "tidelog-produce", "tidelog-produce-batch", "send_batch()"
    lines = [sdk.produce("tidelog-keyed", role, "1", after, key_bytes=KEY_BYTES)]
    for clients in CLIENTS:
        lines += [
            sdk.produce("tidelog-1", role, "1", after, clients=clients),
            sdk.produce("tidelog-all", role, "all", before, clients=clients),
            sdk.produce("tidelog-bulk-1", bulk, "1", after, call=call, clients=clients),
            sdk.produce("tidelog-bulk-all", bulk, "all", before, call=call, clients=clients),
            sdk.consume("tidelog-read", "tidelog-consume", "iterate", "tidelog-all", clients),
            sdk.consume(
                "tidelog-table", "tidelog-consume-arrow", "poll_arrow()", "tidelog-all", clients
            ),
        ]
    return lines


def kafka_lines(bootstrap: str, records: int) -> list[Line]:
    """Kafka's own tools and its Python clients, unflushed and with flush.messages=1."""
    fast = Client("confluent-kafka", bootstrap, records)
    role, call = "confluent-produce", "produce()"
    return [
        *_java_lines(bootstrap, records * JVM_TOOL_TIMES),
        fast.produce("confluent-keyed", role, "1", "none", key_bytes=KEY_BYTES, call=call),
        fast.consume("confluent-read", "confluent-consume", "poll()", "confluent-1"),
        *(line for clients in CLIENTS for line in _confluent_lines(fast, clients)),
        *(line for clients in CLIENTS for line in _kafka_python_lines(bootstrap, records, clients)),
    ]


def _confluent_lines(fast: Client, clients: int) -> list[Line]:
    flush, role, bulk = "flush.messages=1", "confluent-produce", "confluent-produce-batch"
    one = partial(fast.produce, call="produce()", clients=clients)
    many = partial(fast.produce, call="produce_batch()", clients=clients)
    return [
        one("confluent-1", role, "1", "none"),
        one("confluent-flushed", role, "all", flush, creates=FLUSHED),
        many("confluent-bulk-1", bulk, "1", "none"),
        many("confluent-bulk-flushed", bulk, "all", flush, creates=FLUSHED),
        fast.consume(
            "confluent-tuned",
            *("confluent-consume-tuned", "poll(), backoff 10 ms", "confluent-1", clients),
        ),
        fast.consume(
            "confluent-bulk",
            *("confluent-consume-bulk", "consume(10000), backoff 10 ms", "confluent-1", clients),
        ),
    ]


def _kafka_python_lines(bootstrap: str, records: int, clients: int) -> list[Line]:
    slow = Client("kafka-python", bootstrap, max(clients, records // SLOW_CLIENT_SHARE))
    flush, role = "flush.messages=1", "kafka-python-produce"
    return [
        slow.produce("python-1", role, "1", "none", clients=clients),
        slow.produce("python-flushed", role, "all", flush, creates=FLUSHED, clients=clients),
        slow.consume("python-read", "kafka-python-consume", "iterate", "confluent-1", clients),
    ]


def _java_lines(bootstrap: str, records: int) -> list[Line]:
    def produce(key: str, acks: Acks, flush: str, creates: Mapping[str, str]) -> Line:
        settings = {"acks": acks, "batch.size": str(BATCH_BYTES), "linger.ms": str(LINGER_MS)}
        return Line(
            key=key,
            direction="produce",
            client="Kafka ProducerPerformance",
            acks=acks,
            flush=flush,
            run=lambda repetition: tools.producer_performance(
                bootstrap, topic(key, repetition), records, RECORD_BYTES, settings
            ),
            creates=creates,
        )

    def consume(key: str, name: str, *, is_join_counted: bool) -> Line:
        return Line(
            key=key,
            direction="consume",
            client=f"Kafka ConsumerPerformance, {name}",
            run=lambda repetition: tools.consumer_performance(
                bootstrap,
                topic("java-1", repetition),
                records,
                RECORD_BYTES,
                is_join_counted=is_join_counted,
            ),
        )

    return [
        produce("java-1", "1", "none", UNFLUSHED),
        produce("java-flushed", "all", "flush.messages=1", FLUSHED),
        consume("java-read", "with join", is_join_counted=True),
        consume("java-fetch", "without join", is_join_counted=False),
    ]


def _as_records(moved: Moved) -> Throughput:
    """The chain knows bytes only: its rate as if it carried records of the usual size."""
    return Throughput(
        records=moved.messages * moved.message_bytes // RECORD_BYTES,
        record_bytes=RECORD_BYTES,
        seconds=moved.seconds,
    )


def chain_lines() -> list[Line]:
    """What gRPC alone moves through the same hops in the same run, in messages of one batch."""

    def line(key: str, name: str, run: Callable[[], Moved], acks: str, flush: str) -> Line:
        return Line(
            key=key,
            direction="consume" if acks == "-" else "produce",
            client=f"bare gRPC chain, {name}",
            acks=acks,
            flush=flush,
            record="raw bytes",
            run=lambda _repetition: _as_records(run()),
        )

    def produce() -> Moved:
        return chains.produce(CHAIN_MESSAGES, BATCH_BYTES)

    def produce_flushed() -> Moved:
        return chains.produce(CHAIN_MESSAGES, BATCH_BYTES, fsync=True)

    def fetch() -> Moved:
        return chains.fetch(CHAIN_MESSAGES, BATCH_BYTES)

    return [
        line("bare-1", "produce", produce, "1", "none"),
        line("bare-flushed", "produce", produce_flushed, "all", "fdatasync, group commit"),
        line("bare-read", "fetch", fetch, "-", "-"),
    ]


CLIENT_AIM: Final = 1.0
"""Of a per-record client, beside another one."""
PEERS_OF: Final[Mapping[str, Mapping[str, float]]] = {
    "tidelog-1": {"confluent-1": CLIENT_AIM, "java-1": 1.5, "python-1": 1.5, "bare-1": 0},
    "tidelog-all": {
        "confluent-flushed": CLIENT_AIM,
        "java-flushed": 1.5,
        "python-flushed": 1.5,
        "bare-flushed": 0,
    },
    "tidelog-keyed": {"confluent-keyed": CLIENT_AIM},
    "tidelog-bulk-1": {"confluent-bulk-1": CLIENT_AIM, "java-1": 1.5, "bare-1": 0},
    "tidelog-bulk-all": {
        "confluent-bulk-flushed": CLIENT_AIM,
        "java-flushed": 1.5,
        "bare-flushed": 0,
    },
    "tidelog-read": {
        "confluent-read": 1.5,
        "confluent-tuned": 1.5,
        "confluent-bulk": 1.5,
        "python-read": 1.5,
        "java-read": 1.5,
        "java-fetch": 1.5,
        "bare-read": 0,
    },
    "tidelog-table": {"confluent-bulk": 1.5, "java-fetch": 1.5, "bare-read": 0},
}
"""Ours to theirs, at equal durability, and the ratio aimed at: each becomes one printed ratio; with
as many clients on both sides, as far as there are such lines.
"""

COMMON: Final = (
    f"1 replica, {PARTITIONS} partitions, batch {BATCH_BYTES // 1024} KiB, "
    f"linger {LINGER_MS} ms, no compression"
)


def pairs() -> list[Pair]:
    """All of `PEERS_OF`; what has no line on one side is left out where it is printed."""
    return [
        Pair(ours=of_clients(ours, clients), theirs=of_clients(theirs, clients), aim=aim)
        for clients in CLIENTS
        for ours, peers in PEERS_OF.items()
        for theirs, aim in peers.items()
    ]

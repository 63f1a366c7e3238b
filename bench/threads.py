"""What a program's own threads cost its producer: a busy one, and many that share one producer.

Owns the part `threads`: the engine's rate while the user's thread is idle and while it never leaves
Python, and eight threads that share a producer beside eight that have one each. All of a line is
one process, so that its threads want one interpreter. `python -m bench.threads ROLE LOAD` is one.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.clients import payload, tidelog_producer
from bench.opaque import WAIT_SLICE_SECONDS, SelfFedProducer
from bench.processes import Child, print_result, python_child
from bench.settings import BATCH_BYTES, LINGER_MS, PARTITIONS, STALL_SECONDS_MAX, Load
from bench.systems import System
from bench.table import Table, Throughput, count, ratio
from bench.turns import Line, Turns
from bench.window import ROLE_SECONDS_MAX, Counts, Meter, UntilTold, measure, say_ready
from tidelog.client import Producer

THREADS: Final = 8
LOOPS: Final = 1_000
"""Of the hot user between two looks at whether it is over."""


def idle(load: Load) -> Counts:
    """The user's thread waits."""

    def wait(go_on: UntilTold) -> None:
        while go_on:
            time.sleep(WAIT_SLICE_SECONDS)

    return _beside(load, wait)


def hot(load: Load) -> Counts:
    """The user's thread computes in Python and never waits for anything."""

    def compute(go_on: UntilTold) -> None:
        total = 0
        while go_on:
            for number in range(LOOPS):
                total += number

    return _beside(load, compute)


def _beside(load: Load, user: Callable[[UntilTold], None]) -> Counts:
    go_on, meter = UntilTold(), Meter(load.record_bytes)
    producer = SelfFedProducer(load, meter)
    producer.fill()
    say_ready()
    user(go_on)
    if producer.failed is not None:
        raise producer.failed
    counts = meter.counts()
    producer.close()
    return counts


def shared(load: Load) -> Throughput:
    """All threads send through one producer."""
    with tidelog_producer(load) as producer:
        return _by_threads(load, [producer] * THREADS)


def each_its_own(load: Load) -> Throughput:
    """Each thread has a producer of its own."""
    with ExitStack() as stack:
        return _by_threads(
            load, [stack.enter_context(tidelog_producer(load)) for _ in range(THREADS)]
        )


def _by_threads(load: Load, producers: Sequence[Producer]) -> Throughput:
    value, topic, each = payload(load.record_bytes), load.topic, load.records // len(producers)
    for producer in producers:
        producer.partitions_for(topic)
    gate = threading.Barrier(len(producers) + 1)
    failed: list[BaseException] = []

    def send_all(producer: Producer) -> None:
        try:
            gate.wait(STALL_SECONDS_MAX)
            send = producer.send
            for _ in range(each - 1):
                send(topic, value)
            last = send(topic, value)
            producer.flush(timeout=STALL_SECONDS_MAX)
            last.get(timeout=STALL_SECONDS_MAX)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=send_all, args=(one,)) for one in producers]
    for thread in threads:
        thread.start()
    gate.wait(STALL_SECONDS_MAX)
    start = time.perf_counter()
    for thread in threads:
        thread.join(ROLE_SECONDS_MAX)
    seconds = time.perf_counter() - start
    assert not failed, f"a thread failed: {failed[0]}"
    records = each * len(producers)
    return Throughput(records=records, record_bytes=load.record_bytes, seconds=seconds)


def lines(system: System, records: int, seconds: float) -> list[Line]:
    """All four, acks=all at one replica."""

    def line(key: str, client: str, run: Callable[[str], Throughput]) -> Line:
        return Line(
            key=key,
            direction="produce",
            client=client,
            acks="all",
            flush="before the answer",
            run=lambda repetition: run(f"{key}-{repetition}"),
        )

    def by_engine(role: str, topic: str) -> Throughput:
        with _child(role, Load(bootstrap=system.bootstrap, topic=topic, records=0)) as child:
            return measure([child], seconds)

    def by_sends(role: str, topic: str) -> Throughput:
        with _child(role, Load(bootstrap=system.bootstrap, topic=topic, records=records)) as child:
            return child.result(Throughput, timeout_seconds=ROLE_SECONDS_MAX)

    return [
        line("threads-idle", "engine, user's thread idle", lambda t: by_engine("idle", t)),
        line("threads-hot", "engine, user's thread hot", lambda t: by_engine("hot", t)),
        line("threads-shared", "8 threads, 1 producer, send()", lambda t: by_sends("shared", t)),
        line("threads-own", "8 threads, 8 producers, send()", lambda t: by_sends("own", t)),
    ]


def _child(role: str, load: Load) -> Child:
    return python_child("bench.threads", role, msgspec.json.encode(load).decode())


PAIRS: Final = (("threads-hot", "threads-idle"), ("threads-shared", "threads-own"))


def show(system: System, records: int, seconds: float, repetitions: int) -> None:
    """The four lines in turn, and two ratios."""
    every = lines(system, records, seconds)
    for line in every:
        for repetition in range(repetitions):
            system.create_topic(f"{line.key}-{repetition}", {}, PARTITIONS)
    turns = Turns(
        every,
        repetitions,
        f"one process, 1 replica, {PARTITIONS} partitions, batch {BATCH_BYTES // 1024} KiB, "
        f"linger {LINGER_MS} ms, no compression",
    )
    turns.measure()
    turns.show("produce")
    table = Table("Threads of one process", ("line", "beside", "rec/s", "beside rec/s", "ratio"))
    by_key = {line.key: line.client for line in every}
    for ours, beside in PAIRS:
        rate, other = turns.rate_of(ours), turns.rate_of(beside)
        if rate and other:
            table.add(by_key[ours], by_key[beside], count(rate), count(other), ratio(rate, other))
    if table.rows:
        table.show()


ROLES: Final[dict[str, Callable[[Load], msgspec.Struct]]] = {
    "idle": idle,
    "hot": hot,
    "shared": shared,
    "own": each_its_own,
}


def main() -> None:
    role, load = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Load)
    print_result(ROLES[role](load))


if __name__ == "__main__":
    main()

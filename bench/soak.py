"""A node, a producer and a member of a group at a steady rate for a long time: what each one holds.

Owns the part `soak`: resident memory, descriptors and threads of all three processes, looked at
again and again, and the slope of each. Everything that was acknowledged has to be delivered once.
`python -m bench.soak ROLE LOAD` is one of the clients, until it is told to end.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from bench.clients import payload
from bench.growth.weight import KIB, MIB, family, memory_bytes
from bench.processes import Child, ChildFailedError, print_result, python_child
from bench.settings import PARTITIONS, STALL_SECONDS_MAX, Load
from bench.systems import System
from bench.table import Table, count
from bench.window import READY, UntilTold, say_ready
from tidelog.client import Consumer, Producer
from tidelog.client.errors import TidelogError

TOPIC: Final = "soak"
GROUP: Final = "soak"
TICK_SECONDS: Final = 0.02
BEHIND_SECONDS_MAX: Final = 0.25
"""What came later than that is not made up for."""
POLL_MS: Final = 200
WARM_SHARE: Final = 0.2
"""Of the samples: the beginning, in which buffers and pools grow to their size."""
SETTLE_SECONDS: Final = 2.0
END_SECONDS_MAX: Final = 60.0
DRAIN_SECONDS_MAX: Final = 60.0


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What a client did in all."""

    records: int
    seconds: float
    repeated: int = 0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one process, and at those that it started."""

    at_seconds: float
    resident_bytes: int
    descriptors: int
    threads: int


def produce(load: Load) -> Moved:
    """So many records a second; what is counted is acknowledged."""
    go_on, value = UntilTold(), payload(load.record_bytes)
    failed: list[TidelogError] = []
    with Producer(bootstrap_servers=load.bootstrap) as producer:
        producer.partitions_for(load.topic)
        say_ready()
        began = due = time.monotonic()
        sent = 0
        while go_on and not failed:
            now = time.monotonic()
            due = max(due, now - BEHIND_SECONDS_MAX)
            number = int((now - due) * load.rate_per_second)
            due += number / load.rate_per_second
            for _ in range(number - 1):
                producer.send(load.topic, value)
            if number:
                producer.send(load.topic, value).add_errback(failed.append)
            sent += number
            time.sleep(TICK_SECONDS)
        producer.flush(STALL_SECONDS_MAX)
        seconds = time.monotonic() - began
    if failed:
        raise failed[0]
    return Moved(records=sent, seconds=seconds)


def consume(load: Load) -> Moved:
    """A member of a group that commits by itself, until it was told to end and all is read."""
    go_on, began = UntilTold(), time.monotonic()
    records = repeated = 0
    behind: dict[int, int] = {}
    consumer = Consumer(
        load.topic,
        bootstrap_servers=load.bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
    )
    with consumer:
        is_ready = is_empty = False
        drain_until = float("inf")
        while go_on or not is_empty:
            if not go_on:
                drain_until = min(drain_until, time.monotonic() + DRAIN_SECONDS_MAX)
                if time.monotonic() > drain_until:
                    break
            found = consumer.poll(POLL_MS)
            is_empty = not found
            for partition, given in found.items():
                before = behind.get(partition.partition, 0)
                repeated += sum(record.offset < before for record in given)
                behind[partition.partition] = given[-1].offset + 1
                records += len(given)
            if not is_ready and consumer.assignment():
                is_ready = True
                say_ready()
    return Moved(records=records, seconds=time.monotonic() - began, repeated=repeated)


def look(pid: int, at_seconds: float) -> Sample:
    """Now; a node's worker processes belong to it."""
    every = family(pid)
    return Sample(
        at_seconds=at_seconds,
        resident_bytes=memory_bytes(pid),
        descriptors=sum(len(os.listdir(f"/proc/{each}/fd")) for each in every),
        threads=sum(len(os.listdir(f"/proc/{each}/task")) for each in every),
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line that fits best, a unit of the first."""
    if len(points) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    height = sum(y for _, y in points) / len(points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - height) for x, y in points) / spread


def warm(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Without the beginning."""
    return samples[math.ceil(len(samples) * WARM_SHARE) :]


class Soak:
    """One run against one system."""

    def __init__(self, system: System, *, seconds: float, rate: int, every_seconds: float) -> None:
        self._system = system
        self._seconds = seconds
        self._every_seconds = every_seconds
        self._load = Load(bootstrap=system.bootstrap, topic=TOPIC, records=0, rate_per_second=rate)
        self._samples: dict[str, list[Sample]] = {}

    def run(self) -> None:
        """Start the clients, look until it is over, end them, print."""
        self._system.create_topic(TOPIC, {}, PARTITIONS)
        text = msgspec.json.encode(self._load).decode()
        with ExitStack() as stack:
            consumer = stack.enter_context(python_child("bench.soak", "consume", text))
            consumer.wait_line(READY)
            producer = stack.enter_context(python_child("bench.soak", "produce", text))
            producer.wait_line(READY)
            watched = {"producer": producer.pid, "consumer": consumer.pid}
            watched |= {f"node {n}": pid for n, pid in enumerate(self._system.pids, 1)}
            self._watch(watched, (producer, consumer))
            producer.tell_to_end()
            sent = producer.result(Moved, timeout_seconds=END_SECONDS_MAX)
            time.sleep(SETTLE_SECONDS)
            consumer.tell_to_end()
            read = consumer.result(Moved, timeout_seconds=DRAIN_SECONDS_MAX + END_SECONDS_MAX)
        self._show(sent, read)

    def _watch(self, watched: dict[str, int], clients: Sequence[Child]) -> None:
        began = time.monotonic()
        number = 0
        while (at := number * self._every_seconds) <= self._seconds:
            time.sleep(max(0.0, began + at - time.monotonic()))
            for client in clients:
                client.check_running()
            for name, pid in watched.items():
                found = look(pid, time.monotonic() - began)
                self._samples.setdefault(name, []).append(found)
            number += 1

    def _show(self, sent: Moved, read: Moved) -> None:
        names = list(self._samples)
        table = Table(
            f"Soak: {self._load.rate_per_second:,} records/s of {self._load.record_bytes} bytes "
            f"through one producer (acks=all) and a group of one, {self._seconds:.0f} s; "
            "resident MiB, descriptors, threads",
            ("s", *(f"{name} {what}" for name in names for what in ("MiB", "fds", "threads"))),
        )
        for row in zip(*self._samples.values(), strict=True):
            table.add(
                f"{row[0].at_seconds:.0f}",
                *(
                    cell
                    for each in row
                    for cell in (
                        f"{each.resident_bytes / MIB:.1f}",
                        str(each.descriptors),
                        str(each.threads),
                    )
                ),
            )
        table.show()
        for name, samples in self._samples.items():
            self._tell_slope(name, warm(samples))
        print(
            f"produced {count(sent.records)} in {sent.seconds:.0f} s "
            f"({count(sent.records / sent.seconds)} records/s), delivered {count(read.records)}, "
            f"lost {count(max(0, sent.records - read.records + read.repeated))}, "
            f"repeated {read.repeated}",
            flush=True,
        )
        if read.records != sent.records or read.repeated:
            raise ChildFailedError("what was delivered is not what was acknowledged")

    def _tell_slope(self, name: str, samples: Sequence[Sample]) -> None:
        memory = [(each.at_seconds / 60, each.resident_bytes / KIB) for each in samples]
        files = [(each.at_seconds / 60, float(each.descriptors)) for each in samples]
        threads = [(each.at_seconds / 60, float(each.threads)) for each in samples]
        resident = [each.resident_bytes / MIB for each in samples]
        print(
            f"{name}: {slope(memory):+.1f} KiB a minute, {slope(files):+.3f} descriptors, "
            f"{slope(threads):+.3f} threads a minute; {min(resident):.1f} to {max(resident):.1f} "
            f"MiB, over the last {len(samples)} samples"
        )


ROLES: Final[dict[str, Callable[[Load], Moved]]] = {"produce": produce, "consume": consume}


def main() -> None:
    role, load = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Load)
    print_result(ROLES[role](load))


if __name__ == "__main__":
    main()

"""What idle consumers cost a node: parked fetch streams over few connections and over many.

Owns the figures of the product: a node as `tidelog dev` starts it, streams as the SDK opens them,
with its pings. Waiting is measured; then one record, and how long until everybody has it.
`python -m bench.growth.idle --hold …` is the process that holds the consumers.
"""

import argparse
import asyncio
import time
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from bench.growth.weight import KIB, MIB, Scales, memory_bytes
from bench.peers.tidelog_node import TidelogNode
from bench.processes import (
    ChildFailedError,
    print_result,
    python_child,
    raise_open_files_limit,
)
from bench.settings import PARTITIONS
from bench.table import Table, count
from tidelog.client import AdminClient, NewTopic, Producer
from tidelog.client.sync.connections import CHANNEL_OPTIONS
from tidelog.client.wire import calls as wire
from tidelog.ports.real.network.options import ping_options
from tidelog.wire.calls.fetch import FetchPosition
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import Offset, PartitionId, TopicId

TOPIC: Final = "idle"
WINDOW_BYTES: Final = 8 * 1024 * 1024
ANSWER_BYTES: Final = 2 * 1024 * 1024
"""What the SDK's consumer grants a broker, and takes in one answer."""
CONNECT_SECONDS_MAX: Final = 120.0
CONNECTING_AT_ONCE: Final = 50
SETTLE_SECONDS: Final = 6.0
"""Longer than the time between two pings: every connection has begun to ping."""
SPAN_SECONDS: Final = 10.0
WAKE_SECONDS_MAX: Final = 60.0
DESCRIPTORS_SPARE: Final = 512
CORE_SHARE_AIM: Final = 0.10
KIB_AIM: Final = 60
STREAMS_A_CONNECTION: Final = (1, 100)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """So many consumers, so many to a connection."""

    address: str
    topic_id: bytes
    consumers: int
    streams_per_connection: int

    @property
    def connections(self) -> int:
        return -(-self.consumers // self.streams_per_connection)


class Woken(msgspec.Struct, frozen=True, kw_only=True):
    """When the last consumer had its record, by the machine's monotonic clock."""

    last_at: float


class Consumers:
    """Every one reads one partition, from its end."""

    def __init__(self, case: Case) -> None:
        self._case = case
        options = [*CHANNEL_OPTIONS, *ping_options()]
        self._channels = [
            grpc.aio.insecure_channel(case.address, options=options)
            for _ in range(case.connections)
        ]
        self._opening = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self._parked = 0
        self._all_parked = asyncio.Event()

    async def run(self) -> Woken:
        tasks = [asyncio.create_task(self._one(number)) for number in range(self._case.consumers)]
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await self._all_parked.wait()
        print("parked", flush=True)
        return Woken(last_at=max(await asyncio.gather(*tasks)))

    async def _one(self, number: int) -> float:
        case = self._case
        channel = self._channels[number // case.streams_per_connection]
        position = FetchPosition(
            topic_id=TopicId(case.topic_id),
            partition=PartitionId(number % PARTITIONS),
            fetch_offset=Offset(0),
        )
        request = wire.fetch_stream_request(
            [position],
            (),
            credit_bytes=WINDOW_BYTES,
            session_epoch=1,
            max_bytes=ANSWER_BYTES,
            client_rack="",
        )
        async with self._opening:
            call: Any = channel.stream_stream(wire.FETCH_STREAM)(wait_for_ready=True)
            await call.write(request)
            await call.wait_for_connection()
        self._parked += 1
        if self._parked == case.consumers:
            self._all_parked.set()
        answer = await call.read()
        at = time.monotonic()
        _, partitions = wire.read_fetch_answer(answer)
        assert partitions[0].batches, f"a consumer was told {partitions[0].error}"
        return at


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of a node with so many of them."""

    share: float
    share_without: float
    bytes_each: float
    node_bytes: int
    woken_seconds: float


def measure(consumers: int, streams_per_connection: int) -> Cost:
    """A fresh node for each case: what was given back late would hide what the next one takes."""
    with TidelogNode() as node:
        with AdminClient(bootstrap_servers=node.bootstrap) as admin:
            created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        case = Case(
            address=node.bootstrap,
            topic_id=created[0].topic_id,
            consumers=consumers,
            streams_per_connection=streams_per_connection,
        )
        with Producer(bootstrap_servers=node.bootstrap, linger_ms=0) as producer:
            producer.partitions_for(TOPIC)
            time.sleep(SETTLE_SECONDS)
            without = _share(node.pid)
            empty_bytes = memory_bytes(node.pid)
            text = msgspec.json.encode(case).decode()
            with python_child("bench.growth.idle", "--hold", text) as holder:
                holder.wait_line("parked", timeout_seconds=CONNECT_SECONDS_MAX)
                time.sleep(SETTLE_SECONDS)
                share = _share(node.pid)
                held_bytes = memory_bytes(node.pid)
                holder.check_running()
                sent_at = time.monotonic()
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"wake", partition=partition)
                woken = holder.result(Woken, timeout_seconds=WAKE_SECONDS_MAX)
    return Cost(
        share=share,
        share_without=without,
        bytes_each=(held_bytes - empty_bytes) / consumers,
        node_bytes=held_bytes,
        woken_seconds=woken.last_at - sent_at,
    )


def _share(pid: int) -> float:
    scales = Scales([pid])
    time.sleep(SPAN_SECONDS)
    return scales.read().share


def show(most: int) -> None:
    """A fifth of them, then all, each over many connections and over few."""
    allowed = raise_open_files_limit()
    print(f"\nopen files: {allowed:,} are allowed to each process", flush=True)
    table = Table(
        f"Idle consumers of a Tidelog node, {SPAN_SECONDS:.0f} s each; aims: at most "
        f"{CORE_SHARE_AIM:.0%} of a core, {KIB_AIM} KiB each",
        (
            *("consumers", "connections", "node CPU % of a core", "without them"),
            *("KiB a consumer", "node MiB", "one record to all s"),
        ),
    )
    for consumers in (most // 5, most):
        for streams in STREAMS_A_CONNECTION:
            connections = -(-consumers // streams)
            if connections + DESCRIPTORS_SPARE > allowed:
                print(f"{consumers:,} over {connections:,} connections left out: too many files")
                continue
            try:
                cost = measure(consumers, streams)
            except (ChildFailedError, TidelogError) as failure:
                print(f"{consumers:,} over {connections:,} connections failed: {failure}")
                continue
            table.add(
                *(count(consumers), count(connections)),
                *(f"{cost.share * 100:.1f}", f"{cost.share_without * 100:.1f}"),
                *(f"{cost.bytes_each / KIB:.1f}", f"{cost.node_bytes / MIB:.0f}"),
                f"{cost.woken_seconds:.2f}",
            )
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth.idle")
    parser.add_argument("--hold", required=True)
    case = msgspec.json.decode(parser.parse_args().hold, type=Case)
    raise_open_files_limit()
    asyncio.run(_hold(case))


async def _hold(case: Case) -> None:
    print_result(await Consumers(case).run())


if __name__ == "__main__":
    main()

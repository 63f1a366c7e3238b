"""The bare gRPC chain with the hops of a cluster: every node leads, and follows the others.

Owns the ceiling for replicated lines: byte handlers, no batches, no log; the bytes go through as
many processes, connections and flushes as those of a record do. It must never grow product logic.
`python -m bench.chain_nodes ROLE …` is one process of it.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, Literal, get_args

import grpc
import grpc.aio
import msgspec

from bench.chain import (
    ACKNOWLEDGEMENT,
    LATENCY_WARM_UP_RECORDS,
    OPTIONS,
    SERVE_SECONDS_MAX,
    SERVICE,
    Latency,
    Leader,
    window_messages,
)
from bench.group_commit import GroupCommit
from bench.processes import Child, print_result, python_child
from bench.settings import BATCH_BYTES, RECORD_BYTES, STALL_SECONDS_MAX, Acks
from bench.table import Throughput
from bench.window import Counts, Meter, UntilTold, measure, say_ready
from tidelog.chaos.live.processes.ports import free_ports

Disk = Literal["none", "written", "flushed"]
"""What a node does with a message besides passing it on."""
STORED_MESSAGES: Final = 1_024
"""In the file that a node with a disk is fetched from: 256 MiB, in the page cache."""
FETCH_MESSAGES: Final = 1_000
"""Asked for again and again."""
LATENCY_SECONDS_MAX: Final = 300.0


class Node(Leader):
    """Leads what is produced to it, and follows its peers; acks=1 waits for itself alone, and for
    no flush."""

    def __init__(self, acks: Acks, commit: GroupCommit | None) -> None:
        super().__init__(0, commit)
        self._acks = acks
        self._durable = asyncio.Event()
        self._file: int | None = None

    def _stored_message(self, number: int, message: bytes) -> bytes:
        """With a disk it is read from a file, which the first consumer waits for."""
        if self._commit is None:
            return message
        if self._file is None:
            self._file = _stored_file()
        return os.pread(self._file, len(message), number % STORED_MESSAGES * len(message))

    def _committed(self) -> int:
        return self._stored() if self._acks == "1" else super()._committed()

    def on_stored(self) -> None:
        """Its disk has more: for its own acknowledgements, and for its leaders'."""
        self.moved()
        self._durable.set()

    async def follow_peer(self, address: str) -> None:
        """Take every message of one leader; confirm each, with a disk once that has it."""
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            call: Any = channel.stream_stream(f"/{SERVICE}/Follow")(wait_for_ready=True)
            await call.read()
            print("following", flush=True)
            if self._commit is None:
                while await call.read() is not grpc.aio.EOF:
                    await call.write(ACKNOWLEDGEMENT)
                return
            waiting: deque[int] = deque()
            confirm = asyncio.create_task(self._confirm(call, waiting, self._commit))
            try:
                while (message := await call.read()) is not grpc.aio.EOF:
                    waiting.append(self._commit.append(message))
            finally:
                confirm.cancel()

    async def _confirm(self, call: Any, waiting: deque[int], commit: GroupCommit) -> None:
        while True:
            self._durable.clear()
            while waiting and waiting[0] <= commit.stored:
                waiting.popleft()
                await call.write(ACKNOWLEDGEMENT)
            await self._durable.wait()


def _stored_file() -> int:
    """Gone with the process, however that ends."""
    file, name = tempfile.mkstemp()
    os.unlink(name)
    for _ in range(STORED_MESSAGES):
        os.write(file, os.urandom(BATCH_BYTES))
    return file


async def serve(port: int, peers: Sequence[str], acks: Acks, disk: Disk) -> None:
    commit = None
    if disk != "none":
        commit = GroupCommit(tempfile.gettempdir(), is_flushed=disk == "flushed")
    node = Node(acks, commit)
    if commit is not None:
        commit.on_stored(asyncio.get_running_loop(), node.on_stored)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((node.handlers(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("listening", flush=True)
    following = [asyncio.create_task(node.follow_peer(peer)) for peer in peers]
    await server.wait_for_termination(SERVE_SECONDS_MAX)
    for each in following:
        each.cancel()


class _Producing:
    """Streams to every node, in turn; what is acknowledged gives room for more."""

    def __init__(self, calls: Sequence[Any], go_on: UntilTold, meter: Meter) -> None:
        self._calls = calls
        self._go_on = go_on
        self._meter = meter

    async def run(self) -> None:
        await asyncio.gather(*(self._one(call) for call in self._calls))

    async def _one(self, call: Any) -> None:
        window = asyncio.Semaphore(window_messages(BATCH_BYTES))
        reader = asyncio.create_task(self._read(call, window))
        message = bytes(BATCH_BYTES)
        while self._go_on:
            await window.acquire()
            await call.write(message)
        reader.cancel()
        call.cancel()

    async def _read(self, call: Any, window: asyncio.Semaphore) -> None:
        while await call.read() is not grpc.aio.EOF:
            self._meter.add(BATCH_BYTES // RECORD_BYTES)
            window.release()


async def produce(addresses: Sequence[str]) -> Counts:
    """Messages of one batch to every node, as fast as they are acknowledged."""
    go_on, meter = UntilTold(), Meter(RECORD_BYTES)
    channels = [grpc.aio.insecure_channel(each, options=OPTIONS) for each in addresses]
    calls: list[Any] = [each.stream_stream(f"/{SERVICE}/Produce")() for each in channels]
    say_ready()
    await _Producing(calls, go_on, meter).run()
    for channel in channels:
        await channel.close()
    return meter.counts()


async def fetch(addresses: Sequence[str]) -> Counts:
    """Messages of one batch from every node, as fast as they come."""
    go_on, meter = UntilTold(), Meter(RECORD_BYTES)
    asked = json.dumps([FETCH_MESSAGES, BATCH_BYTES]).encode()

    async def read(address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            while go_on:
                fetching: Any = channel.unary_stream(f"/{SERVICE}/Fetch")
                call = fetching(asked)
                while go_on and await call.read() is not grpc.aio.EOF:
                    meter.add(BATCH_BYTES // RECORD_BYTES)
                call.cancel()

    say_ready()
    await asyncio.gather(*(read(each) for each in addresses))
    return meter.counts()


async def latency(addresses: Sequence[str], records: int, rate: int) -> Latency:
    """One record a message, node by node in turn; a late send counts from when it was due."""
    channels = [grpc.aio.insecure_channel(each, options=OPTIONS) for each in addresses]
    calls: list[Any] = [each.stream_stream(f"/{SERVICE}/Produce")() for each in channels]
    sent: list[deque[float]] = [deque() for _ in calls]
    samples_ms: list[float] = []
    message, is_done = os.urandom(RECORD_BYTES), asyncio.Event()

    async def read(call: Any, due: deque[float]) -> None:
        while await call.read() is not grpc.aio.EOF:
            samples_ms.append((time.perf_counter() - due.popleft()) * 1e3)
            if len(samples_ms) == records:
                is_done.set()

    readers = [asyncio.create_task(read(call, due)) for call, due in zip(calls, sent, strict=True)]
    start = time.perf_counter()
    for number in range(records):
        at = start + number / rate
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        sent[number % len(calls)].append(at)
        await calls[number % len(calls)].write(message)
    async with asyncio.timeout(STALL_SECONDS_MAX):
        await is_done.wait()
    for reader in readers:
        reader.cancel()
    for channel in channels:
        await channel.close()
    return Latency.of_ms(samples_ms[LATENCY_WARM_UP_RECORDS:] or samples_ms)


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Which hops."""

    nodes: int
    acks: Acks = "all"
    disk: Disk = "none"


def start(chain: Chain, stack: ExitStack) -> list[str]:
    """The addresses of its nodes, once each follows all others."""
    ports = free_ports(chain.nodes)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    flags = ["--acks", chain.acks, "--disk", chain.disk]
    nodes: list[Child] = []
    for port, own in zip(ports, addresses, strict=True):
        peers = ",".join(each for each in addresses if each != own)
        arguments = ("serve", "--port", str(port), "--addresses", peers, *flags)
        nodes.append(stack.enter_context(python_child("bench.chain_nodes", *arguments)))
    for node in nodes:
        node.wait_line("listening")
        for _ in range(chain.nodes - 1):
            node.wait_line("following")
    return addresses


def throughput(chain: Chain, role: str, clients: int, seconds: float) -> Throughput:
    """So many clients of that role at once."""
    with ExitStack() as stack:
        addresses = ",".join(start(chain, stack))
        return measure(
            [
                stack.enter_context(
                    python_child("bench.chain_nodes", role, "--addresses", addresses)
                )
                for _ in range(clients)
            ],
            seconds,
        )


def paced(chain: Chain, records: int, rate: int) -> Latency:
    """Latency at a steady rate."""
    with ExitStack() as stack:
        addresses = ",".join(start(chain, stack))
        arguments = ("latency", "--addresses", addresses, "--records", str(records))
        client = python_child("bench.chain_nodes", *arguments, "--rate", str(rate))
        return stack.enter_context(client).result(Latency, timeout_seconds=LATENCY_SECONDS_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.chain_nodes")
    parser.add_argument("role", choices=("serve", "produce", "fetch", "latency"))
    parser.add_argument("--addresses", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--acks", choices=("1", "all"), default="all")
    parser.add_argument("--disk", choices=get_args(Disk), default="none")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=1000)
    given = parser.parse_args()
    addresses = [each for each in given.addresses.split(",") if each]
    match given.role:
        case "serve":
            asyncio.run(serve(given.port, addresses, given.acks, given.disk))
        case "produce":
            print_result(asyncio.run(produce(addresses)))
        case "fetch":
            print_result(asyncio.run(fetch(addresses)))
        case _:
            print_result(asyncio.run(latency(addresses, given.records, given.rate)))


if __name__ == "__main__":
    main()

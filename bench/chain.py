"""The bare gRPC chain: what gRPC Python alone moves through the hops that a record takes.

Owns the ceiling that Tidelog's own figures are compared with in the same run: generic byte
handlers, no batches, no log, each role in its own process. It must never grow product logic. Roles
are run as `python -m bench.chain ROLE …`; `python -m bench.chains` puts them together.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from bench.group_commit import GroupCommit
from bench.processes import print_result
from bench.table import percentile

SERVICE: Final = "bench.Chain"
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
)
IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024
IN_FLIGHT_MESSAGES_MIN: Final = 2
QUEUE_MESSAGES_MAX: Final = 16
SERVE_SECONDS_MAX: Final = 900
ACKNOWLEDGEMENT: Final = b"\x01"
LATENCY_WARM_UP_RECORDS: Final = 200

Context = Any  # grpc's stubs leave generic handlers untyped


def window_messages(message_bytes: int) -> int:
    """How many messages a sender keeps in flight: 4 MiB, and never fewer than two."""
    return max(IN_FLIGHT_MESSAGES_MIN, IN_FLIGHT_BYTES // message_bytes)


class Leader:
    """Takes what is produced, hands it to followers and tails, acknowledges when all have it."""

    def __init__(self, followers: int, commit: GroupCommit | None) -> None:
        self._follower_count = followers
        self._commit = commit
        self._queues: list[asyncio.Queue[bytes]] = []
        self._followed: list[int] = []
        self._appended = 0
        self._moved = asyncio.Event()

    async def produce(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """A producer: it ends the call itself once it has read every acknowledgement."""
        acknowledge = asyncio.create_task(self._acknowledge(context, self._appended))
        try:
            async for message in requests:
                for queue in self._queues:
                    await queue.put(message)
                if self._commit is not None:
                    self._commit.append(message)
                self._appended += 1
                self._moved.set()
        finally:
            acknowledge.cancel()

    async def _acknowledge(self, context: Context, done: int) -> None:
        while True:
            await self._until(done + 1)
            for _ in range(self._committed() - done):
                await context.write(ACKNOWLEDGEMENT)
                done += 1

    def _committed(self) -> int:
        return min([self._stored(), *self._followed])

    def _stored(self) -> int:
        return self._appended if self._commit is None else self._commit.stored

    async def _until(self, position: int) -> None:
        while self._committed() < position:
            self._moved.clear()
            await self._moved.wait()

    async def follow(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """A replica: gets every message, answers each with one byte."""
        number = len(self._followed)
        self._followed.append(self._appended)
        send = asyncio.create_task(self._send_all(context))
        try:
            async for _ in requests:
                self._followed[number] += 1
                self._moved.set()
        finally:
            send.cancel()

    async def tail(self, _request: bytes, context: Context) -> None:
        """A consumer behind the producer: client → server → client."""
        await self._send_all(context)

    async def _send_all(self, context: Context) -> None:
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MESSAGES_MAX)
        self._queues.append(queue)
        await context.write(b"")  # tells the reader that it misses nothing from now on
        while True:
            await context.write(await queue.get())

    async def fetch(self, request: bytes, context: Context) -> None:
        """A consumer of stored bytes: server → client as fast as both can."""
        messages, message_bytes = json.loads(request)
        message = bytes(message_bytes)
        for number in range(messages):
            await context.write(self._stored_message(number, message))

    def _stored_message(self, _number: int, message: bytes) -> bytes:
        """What a consumer gets next; without a file always the same bytes."""
        return message

    def moved(self) -> None:
        self._moved.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Produce": grpc.stream_stream_rpc_method_handler(self.produce),
                "Follow": grpc.stream_stream_rpc_method_handler(self.follow),
                "Tail": grpc.unary_stream_rpc_method_handler(self.tail),
                "Fetch": grpc.unary_stream_rpc_method_handler(self.fetch),
            },
        )


async def serve(followers: int, fsync: bool) -> None:
    commit = GroupCommit(tempfile.gettempdir()) if fsync else None
    leader = Leader(followers, commit)
    if commit is not None:
        commit.on_stored(asyncio.get_running_loop(), leader.moved)
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((leader.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening {port}", flush=True)
    await server.wait_for_termination(SERVE_SECONDS_MAX)


def _channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=OPTIONS)


async def follow(address: str) -> None:
    async with _channel(address) as channel:
        call: Any = channel.stream_stream(f"/{SERVICE}/Follow")()
        await call.read()
        print("following", flush=True)
        while (await call.read()) is not grpc.aio.EOF:
            await call.write(ACKNOWLEDGEMENT)


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What a client role printed: bytes through, and the span from first to last."""

    messages: int
    message_bytes: int
    seconds: float

    @property
    def megabytes_per_second(self) -> float:
        return self.messages * self.message_bytes / self.seconds / 1e6


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Send to acknowledgement at a steady rate, in milliseconds."""

    p50_ms: float
    p99_ms: float
    p999_ms: float

    @classmethod
    def of_ms(cls, samples_ms: list[float]) -> "Latency":
        return cls(
            p50_ms=percentile(samples_ms, 0.5),
            p99_ms=percentile(samples_ms, 0.99),
            p999_ms=percentile(samples_ms, 0.999),
        )


async def produce(address: str, messages: int, message_bytes: int) -> Moved:
    async with _channel(address) as channel:
        call: Any = channel.stream_stream(f"/{SERVICE}/Produce")()
        window = asyncio.Semaphore(window_messages(message_bytes))
        message = bytes(message_bytes)
        start = time.perf_counter()

        async def send() -> None:
            for _ in range(messages):
                await window.acquire()
                await call.write(message)

        sender = asyncio.create_task(send())
        for _ in range(messages):
            assert await call.read() is not grpc.aio.EOF, "the leader ended the stream early"
            window.release()
        seconds = time.perf_counter() - start
        await sender
        call.cancel()
    return Moved(messages=messages, message_bytes=message_bytes, seconds=seconds)


async def fetch(address: str, messages: int, message_bytes: int) -> Moved:
    async with _channel(address) as channel:
        fetching: Any = channel.unary_stream(f"/{SERVICE}/Fetch")
        call = fetching(json.dumps([messages, message_bytes]).encode())
        start = time.perf_counter()
        for _ in range(messages):
            assert len(await call.read()) == message_bytes, "a message came back cut"
        seconds = time.perf_counter() - start
    return Moved(messages=messages, message_bytes=message_bytes, seconds=seconds)


async def tail(address: str, messages: int, message_bytes: int) -> Moved:
    async with _channel(address) as channel:
        tailing: Any = channel.unary_stream(f"/{SERVICE}/Tail")
        call = tailing(b"")
        await call.read()
        print("tailing", flush=True)
        await call.read()
        start = time.perf_counter()
        for _ in range(messages - 1):
            await call.read()
        seconds = time.perf_counter() - start
        call.cancel()
    return Moved(messages=messages - 1, message_bytes=message_bytes, seconds=seconds)


async def latency(address: str, records: int, record_bytes: int, rate: int) -> Latency:
    """One record per message at `rate` a second; a late send counts from when it was due."""
    async with _channel(address) as channel:
        call: Any = channel.stream_stream(f"/{SERVICE}/Produce")()
        message = os.urandom(record_bytes)
        due: deque[float] = deque()
        samples_ms: list[float] = []
        start = time.perf_counter()

        async def send() -> None:
            for number in range(records):
                at = start + number / rate
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                due.append(at)
                await call.write(message)

        sender = asyncio.create_task(send())
        for _ in range(records):
            await call.read()
            samples_ms.append((time.perf_counter() - due.popleft()) * 1e3)
        await sender
        call.cancel()
    return Latency.of_ms(samples_ms[LATENCY_WARM_UP_RECORDS:] or samples_ms)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.chain")
    parser.add_argument("role", choices=("serve", "follow", "produce", "fetch", "tail", "latency"))
    parser.add_argument("--address", default="")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=256 * 1024)
    parser.add_argument("--followers", type=int, default=0)
    parser.add_argument("--fsync", action="store_true")
    parser.add_argument("--rate", type=int, default=1000)
    return parser


def main() -> None:
    given = _parser().parse_args()
    match given.role:
        case "serve":
            asyncio.run(serve(given.followers, given.fsync))
            return
        case "follow":
            asyncio.run(follow(given.address))
            return
        case "produce":
            result: Moved | Latency = asyncio.run(
                produce(given.address, given.messages, given.bytes)
            )
        case "fetch":
            result = asyncio.run(fetch(given.address, given.messages, given.bytes))
        case "tail":
            result = asyncio.run(tail(given.address, given.messages, given.bytes))
        case _:
            result = asyncio.run(latency(given.address, given.messages, given.bytes, given.rate))
    print_result(result)


if __name__ == "__main__":
    main()

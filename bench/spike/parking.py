"""What idle consumers cost a server: parked streams beside unary long-polls.

Owns the figures behind docs/adr/0005-fetch-parking.md. A bare grpc.aio server in its own process is
weighed while a client process holds the consumers. It must never send a record: what is measured is
waiting. One process may hold every consumer, so the client's own cost is printed nowhere.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Coroutine, Iterable
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from bench.processes import (
    Child,
    ChildFailedError,
    cpu_seconds,
    python_child,
    raise_open_files_limit,
    resident_bytes,
)
from bench.table import Table

SERVICE: Final = "bench.Parking"
SERVE_SECONDS_MAX: Final = 600
CONNECT_SECONDS_MAX: Final = 60.0
CONNECTING_AT_ONCE: Final = 50
SETTLE_SECONDS: Final = 2.0
SPAN_SECONDS: Final = 8.0
DESCRIPTORS_SPARE: Final = 512
STAT_TIMEOUT_SECONDS: Final = 30.0
KIB: Final = 1024
OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.so_reuseport", 0),
    # Beyond 1,000 calls that wait to be taken up the server cancels new ones.
    ("grpc.server.max_pending_requests", 50_000),
    ("grpc.server.max_pending_requests_hard_limit", 50_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One way of waiting; `wait_ms` 0 means a parked stream."""

    consumers: int
    streams_per_connection: int
    wait_ms: int
    ping_ms: int = 0

    @property
    def connections(self) -> int:
        return -(-self.consumers // self.streams_per_connection)

    @property
    def name(self) -> str:
        if self.wait_ms > 0:
            return f"long-poll, {self.wait_ms} ms"
        return f"parked, ping {self.ping_ms} ms" if self.ping_ms else "parked stream"

    @property
    def channel_options(self) -> list[tuple[str, int]]:
        if self.ping_ms == 0:
            return list(OPTIONS)
        # Parked streams carry no data: without the last option the pings stop after two.
        ping = ("grpc.keepalive_time_ms", self.ping_ms)
        return [*OPTIONS, ping, ("grpc.http2.max_pings_without_data", 0)]


CASES: Final = tuple(
    Case(consumers=consumers, streams_per_connection=streams, wait_ms=wait_ms, ping_ms=ping_ms)
    for consumers in (1_000, 5_000)
    for streams, wait_ms, ping_ms in (
        (1, 0, 0),
        (1, 0, 5_000),
        (100, 0, 0),
        (1, 500, 0),
        (100, 500, 0),
        (1, 5_000, 0),
    )
)


class Parking:
    """The server side: nobody is ever woken, since no record ever comes."""

    def __init__(self) -> None:
        self._nothing = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._polls = 0

    async def park(self, _request: bytes, context: Any) -> None:
        await context.write(b"")
        await self._nothing.wait()

    async def poll(self, request: bytes, _context: Any) -> bytes:
        answered = self._loop.create_future()
        # Cheaper than asyncio.timeout, which cancels a task each time: long-polls at their best.
        self._loop.call_later(int(request) / 1e3, _resolve, answered)
        await answered
        self._polls += 1
        return b""

    async def stat(self, _request: bytes, _context: Any) -> bytes:
        return str(self._polls).encode()


def _resolve(answered: "asyncio.Future[None]") -> None:
    if not answered.done():  # the client may have gone in between
        answered.set_result(None)


async def serve() -> None:
    raise_open_files_limit()
    parking = Parking()
    handlers: dict[str, Any] = {
        "Park": grpc.unary_stream_rpc_method_handler(parking.park),
        "Poll": grpc.unary_unary_rpc_method_handler(parking.poll),
        "Stat": grpc.unary_unary_rpc_method_handler(parking.stat),
    }
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening {port}", flush=True)
    await server.wait_for_termination(SERVE_SECONDS_MAX)


class Consumers:
    """The client side: every consumer waits; a long-poll asks again as soon as it is answered."""

    def __init__(self, address: str, case: Case) -> None:
        self._case = case
        self._channels = [
            grpc.aio.insecure_channel(address, options=case.channel_options)
            for _ in range(case.connections)
        ]
        self._opening = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self._waiting = 0
        self._all_wait = asyncio.Event()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._one(number)) for number in range(self._case.consumers)]
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await self._all_wait.wait()
        print("waiting", flush=True)
        await asyncio.gather(*tasks)

    def _one(self, number: int) -> Coroutine[Any, Any, None]:
        channel = self._channels[number // self._case.streams_per_connection]
        return self._parked(channel) if self._case.wait_ms == 0 else self._polling(channel)

    def _arrived(self) -> None:
        self._waiting += 1
        if self._waiting == self._case.consumers:
            self._all_wait.set()

    async def _parked(self, channel: grpc.aio.Channel) -> None:
        async with self._opening:
            park: Any = channel.unary_stream(f"/{SERVICE}/Park")
            call = park(b"", wait_for_ready=True)
            await call.read()
        self._arrived()
        await call.read()

    async def _polling(self, channel: grpc.aio.Channel) -> None:
        poll: Any = channel.unary_unary(f"/{SERVICE}/Poll")
        async with self._opening:
            await poll(b"0", wait_for_ready=True)
        self._arrived()
        await self._all_wait.wait()  # early pollers would keep late ones from connecting
        wait_ms = str(self._case.wait_ms).encode()
        while True:
            await poll(wait_ms)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What the server used while everybody waited."""

    cpu_share: float
    bytes_per_consumer: float
    polls_per_second: float


def _polls(address: str) -> int:
    with grpc.insecure_channel(address) as channel:
        stat: Any = channel.unary_unary(f"/{SERVICE}/Stat")
        return int(stat(b"", timeout=STAT_TIMEOUT_SECONDS))


def _weigh(server: Child, address: str, case: Case) -> Cost:
    empty_bytes = resident_bytes(server.pid)
    options = ("--address", address, "--case", json.dumps(msgspec.to_builtins(case)))
    with python_child("bench.spike.parking", *options) as consumers:
        consumers.wait_line("waiting", timeout_seconds=CONNECT_SECONDS_MAX)
        time.sleep(SETTLE_SECONDS)
        polls, used, start = _polls(address), cpu_seconds(server.pid), time.perf_counter()
        time.sleep(SPAN_SECONDS)
        seconds = time.perf_counter() - start
        used = cpu_seconds(server.pid) - used
        held_bytes = resident_bytes(server.pid) - empty_bytes
        polls = _polls(address) - polls
        consumers.check_running()
    return Cost(
        cpu_share=used / seconds,
        bytes_per_consumer=held_bytes / case.consumers,
        polls_per_second=polls / seconds,
    )


def measure(case: Case) -> Cost:
    """A fresh server for each case: grpc gives memory back late."""
    with python_child("bench.spike.parking", "--serve") as server:
        address = "127.0.0.1:" + server.wait_line("listening").split()[1]
        _polls(address)  # grpc's own first-call memory is not a consumer's
        return _weigh(server, address, case)


def _show(cases: Iterable[Case]) -> None:
    allowed = raise_open_files_limit()
    table = Table(
        f"Idle consumers on a bare grpc.aio server, {SPAN_SECONDS:.0f} s each",
        (
            "consumers",
            "waiting by",
            "streams a connection",
            "server CPU, % of a core",
            "KiB a consumer",
            "polls/s",
            "polls/s due",
        ),
    )
    for case in cases:
        if case.connections + DESCRIPTORS_SPARE > allowed:
            print(f"{case} skipped: {allowed:,} descriptors are allowed")
            continue
        try:
            cost = measure(case)
        except ChildFailedError as failure:
            print(f"{case} was not reached: {failure}")
            continue
        due = case.consumers / case.wait_ms * 1e3 if case.wait_ms else 0.0
        table.add(
            f"{case.consumers:,}",
            case.name,
            str(case.streams_per_connection),
            f"{cost.cpu_share * 100:.1f}",
            f"{cost.bytes_per_consumer / KIB:.1f}",
            f"{cost.polls_per_second:,.0f}",
            f"{due:,.0f}" if due else "-",
        )
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spike.parking")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--case", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
    elif given.address:
        raise_open_files_limit()
        asyncio.run(_hold(given.address, msgspec.json.decode(given.case, type=Case)))
    else:
        _show(CASES)


async def _hold(address: str, case: Case) -> None:
    await Consumers(address, case).run()


if __name__ == "__main__":
    main()

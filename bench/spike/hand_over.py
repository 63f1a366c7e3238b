"""What crosses from a busy user thread to the I/O thread, by message size.

Owns the figures behind docs/adr/0006-hand-over.md. One process plays the SDK: a user thread that
never leaves Python, and grpc's synchronous bidirectional stream whose request iterator takes sealed
messages from a queue; each message is acknowledged by a server in its own process. It must never
seal in the I/O thread: what is measured is the hand-over, not the encoder.
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import grpc
import msgspec

from bench.chain import OPTIONS, SERVICE, window_messages
from bench.processes import print_result, python_child
from bench.table import Table, median

SIZES_BYTES: Final = (16 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)
SPAN_SECONDS: Final = 1.5
REPETITIONS: Final = 3
ROUND_SECONDS_MAX: Final = 60.0
SHORT_SWITCH_SECONDS: Final = 0.0005
RECORD_BYTES: Final = 100
# A producer at a million 100-byte records a second seals 256 KiB about this often.
SEAL_SECONDS: Final = 0.0025


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One span: bytes acknowledged, and how often the user thread got round its loop."""

    megabytes_per_second: float
    user_loops_per_second: float


class Stream:
    """The I/O side: messages out of a bounded window, acknowledgements back into it."""

    def __init__(self, address: str, message_bytes: int) -> None:
        self._message = bytes(message_bytes)
        self._window = threading.Semaphore(window_messages(message_bytes))
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._stopped = threading.Event()
        self.acknowledged = 0
        call: Any = self._channel.stream_stream(f"/{SERVICE}/Produce")
        self._call = call(self._requests(), timeout=ROUND_SECONDS_MAX)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _requests(self) -> Iterator[bytes]:
        while not self._stopped.is_set():
            if self._window.acquire(timeout=0.1):
                yield self._message

    def _read(self) -> None:
        try:
            for _ in self._call:
                self.acknowledged += 1
                self._window.release()
        except grpc.RpcError:
            return  # cancelled at the end of the span

    def close(self) -> None:
        self._stopped.set()
        self._call.cancel()
        self._reader.join(ROUND_SECONDS_MAX)
        self._channel.close()


def _busy(until: float, pause_seconds: float | None = None) -> int:
    """The hot user: appends to a list as `send()` does to an open batch, and never blocks;
    with a pause, it lets go of the interpreter once per seal."""
    loops = 0
    value = bytes(RECORD_BYTES)
    seal = time.perf_counter() + SEAL_SECONDS
    while (now := time.perf_counter()) < until:
        batch: list[bytes] = []
        for _ in range(1000):
            batch.append(value)
        loops += 1
        if pause_seconds is not None and now > seal:
            time.sleep(pause_seconds)
            seal = time.perf_counter() + SEAL_SECONDS
    return loops


def _alone() -> Moved:
    loops = _busy(time.perf_counter() + SPAN_SECONDS)
    return Moved(megabytes_per_second=0.0, user_loops_per_second=loops / SPAN_SECONDS)


def _span(address: str, message_bytes: int, user: str) -> Moved:
    stream = Stream(address, message_bytes)
    interval = sys.getswitchinterval()
    try:
        time.sleep(0.2)  # the stream is up and its window is full
        if user == "hot, switch 0.5 ms":
            sys.setswitchinterval(SHORT_SWITCH_SECONDS)
        before, start = stream.acknowledged, time.perf_counter()
        loops = 0
        if user == "idle":
            time.sleep(SPAN_SECONDS)
        else:
            loops = _busy(start + SPAN_SECONDS, PAUSES_SECONDS.get(user))
        seconds = time.perf_counter() - start
        moved_bytes = (stream.acknowledged - before) * message_bytes
    finally:
        sys.setswitchinterval(interval)
        stream.close()
    return Moved(
        megabytes_per_second=moved_bytes / seconds / 1e6, user_loops_per_second=loops / seconds
    )


PAUSES_SECONDS: Final = {"hot, sleep(0) a seal": 0.0, "hot, 100 us a seal": 0.0001}
USERS: Final = ("idle", "hot", "hot, switch 0.5 ms", *PAUSES_SECONDS)


def _measure(message_bytes: int, user: str) -> Moved:
    """In a fresh process: grpc's threads of one span must not meet those of the next."""
    with python_child("bench.chain", "serve") as server:
        port = server.wait_line("listening").split()[1]
        arguments = ("--address", f"127.0.0.1:{port}", "--bytes", str(message_bytes))
        with python_child("bench.spike.hand_over", *arguments, "--user", user) as child:
            return child.result(Moved, timeout_seconds=ROUND_SECONDS_MAX)


def _show(repetitions: int) -> None:
    alone = median([_alone().user_loops_per_second for _ in range(repetitions)])
    measured: dict[tuple[int, str], list[Moved]] = {}
    for _ in range(repetitions):
        for size in SIZES_BYTES:
            for user in USERS:
                measured.setdefault((size, user), []).append(_measure(size, user))
    table = Table(
        f"Hand-over to the I/O thread, {repetitions} repetitions of {SPAN_SECONDS} s, "
        "4 MiB in flight",
        ("message KiB", "user thread", "MB/s", "messages/s", "÷ idle", "user's pace ÷ alone"),
    )
    for (size, user), spans in measured.items():
        rate = median([span.megabytes_per_second for span in spans])
        idle = median([span.megabytes_per_second for span in measured[size, "idle"]])
        pace = median([span.user_loops_per_second for span in spans]) / alone
        table.add(
            str(size // 1024),
            user,
            f"{rate:.0f}",
            f"{rate * 1e6 / size:,.0f}",
            f"{rate / idle:.2f}",
            "-" if user == "idle" else f"{pace:.2f}",
        )
    table.show()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spike.hand_over")
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=SIZES_BYTES[0], help=argparse.SUPPRESS)
    parser.add_argument("--user", choices=USERS, default="idle", help=argparse.SUPPRESS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    given = parser.parse_args()
    if given.address:
        print_result(_span(given.address, given.bytes, given.user))
    else:
        _show(given.repetitions)


if __name__ == "__main__":
    main()

"""Ctrl-C while a call of the SDK is blocked: how long until the program has its thread back.

`python -m bench.interrupts` blocks a fresh program in each call, again and again, sends it SIGINT,
and prints when KeyboardInterrupt was raised and when the process was gone. Owns the programs: each
is what a user writes, against a node behind a proxy that swallows everything once the program is
ready. It must never help the program: the signal comes from outside.
"""

import argparse
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.places import GROUP, TOPIC, Spot, swallowing
from bench.table import Table, median

BLOCKED_SECONDS: Final = 0.5
"""So long a program is given to be inside its call."""
PROGRAM_SECONDS_MAX: Final = 90.0
AT_ONCE: Final = 5
NS_PER_MS: Final = 1_000_000
AIM_MS: Final = 200
READY: Final = "ready"

HEAD: Final = f"""
import os, sys, time
from tidelog.client import Consumer, Producer
address, topic, group = sys.argv[1], {TOPIC!r}, f"{GROUP}-{{os.getpid()}}"
def ready():
    print({READY!r}, flush=True)
    sys.stdin.readline()
"""
TAIL: Final = """
try:
    CALL
except KeyboardInterrupt:
    print(time.monotonic_ns(), flush=True)
    raise
"""
PRODUCER: Final = """
producer = Producer(bootstrap_servers=address, buffer_memory=1_000_000)
producer.send(topic, b"first").get()
ready()
"""
CONSUMER: Final = """
consumer = Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
while not consumer.poll(100):
    pass
ready()
"""
MEMBER: Final = CONSUMER.replace("topic, boot", "topic, group_id=group, boot", 1)


class Blocked(NamedTuple):
    """A program that waits in a call of the SDK."""

    preparation: str
    call: str
    is_swallowed: bool = True
    """Whether the node is out of reach meanwhile; a poll waits for data at one that answers."""


CALLS: Final[dict[str, Blocked]] = {
    "send(), buffer full": Blocked(PRODUCER, "while True: producer.send(topic, bytes(10_000))"),
    "poll(), no data": Blocked(CONSUMER, "while True: consumer.poll(60_000)", is_swallowed=False),
    "flush(), black hole": Blocked(PRODUCER, "producer.send(topic, b'v'); producer.flush()"),
    "close(), black hole": Blocked(PRODUCER, "producer.send(topic, b'v'); producer.close()"),
    "get(), black hole": Blocked(PRODUCER, "producer.send(topic, b'v').get()"),
    "flush() in a with block": Blocked(
        PRODUCER, "with producer: producer.send(topic, b'v'); producer.flush()"
    ),
    "poll() of a member, no data": Blocked(
        MEMBER, "while True: consumer.poll(60_000)", is_swallowed=False
    ),
    "close() of a member, black hole": Blocked(MEMBER, "consumer.close()"),
}


class Program:
    """One of them, in a process of its own."""

    def __init__(self, blocked: Blocked, address: str) -> None:
        source = HEAD + blocked.preparation + TAIL.replace("CALL", blocked.call)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", source, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._timer = threading.Timer(PROGRAM_SECONDS_MAX, self._process.kill)
        self._timer.start()

    def _line(self) -> str:
        assert self._process.stdout is not None, "the program was started with a pipe"
        return self._process.stdout.readline().strip()

    def wait_ready(self) -> None:
        """It has reached the cluster, and waits to be told to go on."""
        assert self._line() == READY, "a program ended before it was ready"

    def block(self) -> None:
        """It calls what blocks."""
        assert self._process.stdin is not None, "the program was started with a pipe"
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def interrupt(self) -> tuple[float, float]:
        """Milliseconds from the signal to the exception, and to the end of the process."""
        began_ns = time.monotonic_ns()
        self._process.send_signal(signal.SIGINT)
        raised = self._line()
        self._process.wait()
        gone_ns = time.monotonic_ns()
        assert raised, "the program ended without KeyboardInterrupt, or had to be killed"
        return (int(raised) - began_ns) / NS_PER_MS, (gone_ns - began_ns) / NS_PER_MS

    def close(self) -> None:
        """Gone, whatever it was doing."""
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()


def measure(blocked: Blocked, spot: Spot, repetitions: int) -> list[tuple[float, float]]:
    """A few programs at once, each interrupted while the others wait."""
    assert spot.swallow is not None, "a swallowing place can be told"
    assert spot.heal is not None, "a swallowing place can be healed"
    took: list[tuple[float, float]] = []
    while len(took) < repetitions:
        with ExitStack() as stack:
            programs = []
            for _ in range(min(AT_ONCE, repetitions - len(took))):
                program = Program(blocked, spot.options["bootstrap_servers"])
                stack.callback(program.close)
                programs.append(program)
            for program in programs:
                program.wait_ready()
            if blocked.is_swallowed:
                spot.swallow()
                stack.callback(spot.heal)
            for program in programs:
                program.block()
            time.sleep(BLOCKED_SECONDS)
            took += [program.interrupt() for program in programs]
    return took


def main() -> int:
    """The exit status is 1 if a call took longer than the aim."""
    parser = argparse.ArgumentParser(prog="bench.interrupts", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--call", action="append", choices=list(CALLS), help="default: all")
    given = parser.parse_args()
    # A program in the background ignores Ctrl-C, and so would those that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    table = Table(
        f"SIGINT to KeyboardInterrupt, and to the end of the process, {given.repetitions} programs "
        f"each; aim: at most {AIM_MS} ms",
        ("blocked in", "raised p50 ms", "raised max ms", "gone p50 ms", "gone max ms"),
    )
    longest = 0.0
    with swallowing() as spot:
        for name in given.call or CALLS:
            took = measure(CALLS[name], spot, given.repetitions)
            raised, gone = [each for each, _ in took], [each for _, each in took]
            longest = max(longest, *raised)
            table.add(
                *(name, f"{median(raised):.1f}", f"{max(raised):.1f}"),
                *(f"{median(gone):.1f}", f"{max(gone):.1f}"),
            )
    table.show()
    return int(longest > AIM_MS)


if __name__ == "__main__":
    sys.exit(main())

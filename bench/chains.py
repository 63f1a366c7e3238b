"""The bare gRPC chains: produce, fetch, through, and produce with two followers.

Owns the ceiling in docs/performance.md. Chains take turns within each repetition, medians are
printed; the functions here are also what `python -m bench` prints beside Tidelog.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, TypeVar

from bench.chain import Latency, Moved
from bench.processes import Child, python_child
from bench.table import Table, median

MESSAGE_BYTES: Final = 256 * 1024
MESSAGES: Final = 4000
REPETITIONS: Final = 5
ROLE_SECONDS_MAX: Final = 120.0
Result = TypeVar("Result", Moved, Latency)


def _role(role: str, address: str, *arguments: str) -> Child:
    return python_child("bench.chain", role, "--address", address, *arguments)


def _start_leader(stack: ExitStack, *arguments: str) -> str:
    leader = stack.enter_context(python_child("bench.chain", "serve", *arguments))
    return "127.0.0.1:" + leader.wait_line("listening").split()[1]


def _result(child: Child, kind: type[Result]) -> Result:
    return child.result(kind, timeout_seconds=ROLE_SECONDS_MAX)


def _sizes(messages: int, message_bytes: int) -> tuple[str, ...]:
    return ("--messages", str(messages), "--bytes", str(message_bytes))


def produce(messages: int, message_bytes: int, *, followers: int = 0, fsync: bool = False) -> Moved:
    """client → server, each message acknowledged; with followers when those have it too."""
    with ExitStack() as stack:
        flags = ("--fsync",) if fsync else ()
        address = _start_leader(stack, "--followers", str(followers), *flags)
        for _ in range(followers):
            stack.enter_context(_role("follow", address)).wait_line("following")
        sizes = _sizes(messages, message_bytes)
        return _result(stack.enter_context(_role("produce", address, *sizes)), Moved)


def fetch(messages: int, message_bytes: int) -> Moved:
    """server → client."""
    with ExitStack() as stack:
        address = _start_leader(stack)
        sizes = _sizes(messages, message_bytes)
        return _result(stack.enter_context(_role("fetch", address, *sizes)), Moved)


def through(messages: int, message_bytes: int) -> Moved:
    """client → server → client, timed where it arrives."""
    with ExitStack() as stack:
        address = _start_leader(stack)
        sizes = _sizes(messages, message_bytes)
        consumer = stack.enter_context(_role("tail", address, *sizes))
        consumer.wait_line("tailing")
        stack.enter_context(_role("produce", address, *sizes))
        return _result(consumer, Moved)


def latency(records: int, record_bytes: int, rate: int) -> Latency:
    """One record a message, acknowledged after a group-commit fdatasync."""
    with ExitStack() as stack:
        address = _start_leader(stack, "--fsync")
        sizes = (*_sizes(records, record_bytes), "--rate", str(rate))
        return _result(stack.enter_context(_role("latency", address, *sizes)), Latency)


CHAINS: Final[dict[str, Callable[[int, int], Moved]]] = {
    "produce: client → server": produce,
    "fetch: server → client": fetch,
    "through: client → server → client": through,
    "produce: client → server → 2 followers": lambda n, size: produce(n, size, followers=2),
    "produce: client → server + fdatasync": lambda n, size: produce(n, size, fsync=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.chains")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--bytes", type=int, default=MESSAGE_BYTES)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    given = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in CHAINS}
    for _ in range(given.repetitions):
        for name, chain in CHAINS.items():
            rates[name].append(chain(given.messages, given.bytes).megabytes_per_second)
    table = Table(
        f"Bare gRPC chains, {given.bytes // 1024} KiB messages, {given.messages:,} of them, "
        f"{given.repetitions} repetitions",
        ("chain", "MB/s median", "MB/s lowest", "MB/s highest", "÷ produce"),
    )
    base = median(rates["produce: client → server"])
    for name, measured in rates.items():
        middle = median(measured)
        table.add(
            name,
            f"{middle:.0f}",
            f"{min(measured):.0f}",
            f"{max(measured):.0f}",
            f"{middle / base:.2f}",
        )
    table.show()


if __name__ == "__main__":
    main()

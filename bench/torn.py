"""`python -m bench.torn [--peers kafka]`: a request to end a transaction that is delivered late.

One program, on Apache Kafka with confluent-kafka and on Tidelog with its own client: it ends a
transaction, the connection breaks under the request, the client asks again and is answered, and the
program goes on with its next transaction. In the middle of that one the network delivers the first
request after all.

    transaction 1   one record to each of two partitions, ended one way; the request is kept back
    transaction 2   one record to partition 0; now the old request arrives; one record to partition
                    1; ended the other way

A transaction is torn if a reader of committed records sees one of its records and not the other, or
not what the program was told: committed and not there, aborted and there. Owns the program, the
judgement and the counts. Exit code 1: Tidelog has torn one; 2: a
round of Tidelog could not be played. What Kafka does is only printed.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Protocol

import msgspec

from bench.holding_proxy import NotAnsweredError, NothingHeldError
from bench.peers.kafka.node import PeerMissingError, prepare
from bench.table import Table
from bench.turns import FAILURES

ROUNDS: Final = 20
OURS: Final = "Tidelog"
PARTITIONS: Final = (0, 1)


class Program(Protocol):
    """A client that writes transactions to two partitions of a topic, through the proxy."""

    def begin(self) -> None:
        """The next transaction."""
        ...

    def send(self, partition: int, value: str) -> None:
        """One record of it; returns when it is acknowledged."""
        ...

    def end(self, *, is_commit: bool) -> None:
        """Returns when the client says that it is ended; raises what it says otherwise."""
        ...

    def give_up(self) -> None:
        """Whatever is open is aborted, as the client demands it after an error."""
        ...

    def close(self) -> None:
        """No more transactions."""
        ...


class HoldingProxyLike(Protocol):
    """What keeps a request back."""

    def arm(self) -> None:
        """Keep the next request to end a transaction."""
        ...

    def wait_held(self) -> None:
        """Until it is kept."""
        ...

    def let_go(self, *, is_delivered: bool = True) -> None:
        """Deliver it and wait for its answer, or lose it."""
        ...


class Target(Protocol):
    """A system with one node, behind a proxy."""

    @property
    def name(self) -> str:
        """As the table has it."""
        ...

    @property
    def proxy(self) -> HoldingProxyLike:
        """Between its programs and its node."""
        ...

    def start(self, label: str) -> Program:
        """A client with a transactional id of its own."""
        ...

    def committed(self) -> list[str]:
        """Everything that a reader of committed records sees, once no transaction is open."""
        ...


class Ended(msgspec.Struct, frozen=True):
    """One transaction, as the program knows it."""

    values: tuple[str, str]
    is_commit: bool
    complaint: str
    """What the client said of it that was no success; empty: it said nothing else."""


class Case(msgspec.Struct, frozen=True):
    """Which request comes late."""

    name: str
    is_late_commit: bool
    is_delivered: bool = True
    """False: the network loses it for good, and nothing can tear by it."""


CASES: Final = (
    Case("late commit", is_late_commit=True),
    Case("late abort", is_late_commit=False),
    Case("lost commit", is_late_commit=True, is_delivered=False),
    Case("lost abort", is_late_commit=False, is_delivered=False),
)


class Count(msgspec.Struct):
    """Of one system and case."""

    rounds: int = 0
    torn: int = 0
    silent: int = 0
    """Torn, and the client had called every step of both transactions a success."""
    complaints: dict[str, int] = {}
    failures: list[str] = []


def play(program: Program, proxy: HoldingProxyLike, case: Case, label: str) -> list[Ended]:
    """One round; what the program knows of its two transactions."""
    first = (f"{label}-1-a", f"{label}-1-b")
    program.begin()
    for partition, value in zip(PARTITIONS, first, strict=True):
        program.send(partition, value)
    proxy.arm()
    complaint = _told(lambda: program.end(is_commit=case.is_late_commit))
    proxy.wait_held()
    done = [Ended(first, case.is_late_commit, complaint)]

    second = (f"{label}-2-a", f"{label}-2-b")

    def work() -> None:
        program.begin()
        program.send(0, second[0])
        proxy.let_go(is_delivered=case.is_delivered)
        program.send(1, second[1])
        program.end(is_commit=not case.is_late_commit)

    told = _told(work)
    if told:
        program.give_up()
    done.append(Ended(second, not case.is_late_commit, told))
    return done


def _told(work: Callable[[], None]) -> str:
    try:
        work()
    except (NothingHeldError, NotAnsweredError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a client says, the program goes on
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def is_torn(ended: Ended, seen: set[str]) -> bool:
    """Whether readers see something else than all or nothing, or than the program was told."""
    shown = [value in seen for value in ended.values]
    if any(shown) and not all(shown):
        return True
    # Where the client has complained the program knows nothing of the end.
    return not ended.complaint and all(shown) != ended.is_commit


def measure(target: Target, rounds: int, case: Case) -> Count:
    """So many rounds of one case, each with a client of its own."""
    count = Count(complaints={}, failures=[])
    for number in range(rounds):
        label = f"{case.name.replace(' ', '-')}-{number}"
        try:
            program = target.start(label)
            try:
                done = play(program, target.proxy, case, label)
            finally:
                program.close()
            seen = set(target.committed())
        except (*FAILURES, NothingHeldError, RuntimeError) as failure:
            count.failures.append(f"round {number}: {failure}".splitlines()[0])
            continue
        count.rounds += 1
        torn = [each for each in done if is_torn(each, seen)]
        count.torn += len(torn)
        count.silent += len(torn) if not any(each.complaint for each in done) else 0
        for each in done:
            if each.complaint:
                count.complaints[each.complaint] = count.complaints.get(each.complaint, 0) + 1
    return count


def show(rows: list[tuple[str, Case, Count]]) -> None:
    """One line a system and case, then what clients have said."""
    table = Table(
        "A request to end transaction 1 that arrives in the middle of transaction 2",
        ("system", "case", "rounds", "torn transactions", "of these without a word"),
    )
    for name, case, count in rows:
        table.add(name, case.name, str(count.rounds), str(count.torn), str(count.silent))
    table.show()
    for name, case, count in rows:
        for text, times in count.complaints.items():
            print(f"{name}, {case.name}: {times} x {text}")
        for failure in count.failures:
            print(f"{name}, {case.name}: not played, {failure}")


def main() -> int:
    """Exit code 0: Tidelog has torn none, or was not asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.torn", description=__doc__)
    parser.add_argument("--peers", choices=["kafka"], nargs="*", default=[])
    parser.add_argument("--only-peers", action="store_true", help="leave Tidelog out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each case and system")
    arguments = parser.parse_args()
    rows: list[tuple[str, Case, Count]] = []
    with ExitStack() as stack:
        targets: list[Target] = []
        if not arguments.only_peers:
            from bench.torn_tidelog import TidelogTarget

            targets.append(stack.enter_context(TidelogTarget()))
        if "kafka" in arguments.peers:
            try:
                prepare()
            except PeerMissingError as missing:
                print(missing)
            else:
                from bench.torn_kafka import KafkaTarget

                targets.append(stack.enter_context(KafkaTarget()))
        for target in targets:
            for case in CASES:
                rows.append((target.name, case, measure(target, arguments.rounds, case)))
    show(rows)
    ours = [count for name, _, count in rows if name == OURS]
    if any(count.torn for count in ours):
        return 1
    return 2 if any(count.failures for count in ours) else 0


if __name__ == "__main__":
    sys.exit(main())

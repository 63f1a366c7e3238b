"""Clients across process starts: every way to start a child, every client, with and without gRPC.

`python -m tests.client.support.fork_matrix --runs 200` prints one line per cell. A run is one
child. It must end by itself within its deadline: without a crash, and with ForkedClientError
exactly where gRPC cannot work. Children of plain os.fork leave through the interpreter's own end.
"""

import argparse
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from tidelog.client import AdminClient, Producer
from tidelog.client.errors import ForkedClientError, TidelogError

METHODS: Final = ("fork", "forkserver", "spawn")
CLIENTS: Final = ("fresh", "inherited", "closed")
PARENTS: Final = ("idle", "grpc")
CHILD_SECONDS_MAX: Final = 60.0
CHILDREN_PER_PARENT: Final = 20

AS_EXPECTED: Final = 0
UNEXPECTED: Final = 3


class Cell(msgspec.Struct, frozen=True):
    """One combination."""

    method: str
    client: str
    parent: str

    @property
    def must_refuse(self) -> bool:
        """Whether the child must meet ForkedClientError."""
        if self.client == "inherited":
            return True
        return self.method == "fork" and self.parent == "grpc"


class Count(msgspec.Struct):
    """What became of a cell's children."""

    expected: int = 0
    unexpected: int = 0
    hung: int = 0
    crashed: int = 0

    def add(self, other: "Count") -> None:
        self.expected += other.expected
        self.unexpected += other.unexpected
        self.hung += other.hung
        self.crashed += other.crashed


# The child.


def use_fresh(address: str, must_refuse: bool) -> int:
    """Make a client here and use it."""

    def use() -> None:
        with Producer(bootstrap_servers=address, client_id="child") as producer:
            producer.send("forks", b"from a child").get(CHILD_SECONDS_MAX)

    return judge(use, must_refuse)


def judge(use: Callable[[], object], must_refuse: bool) -> int:
    """An exit code: did it refuse exactly when it must?"""
    try:
        use()
    except ForkedClientError as error:
        if not must_refuse or "forkserver" not in error.hint:
            print(f"unexpected: {error}", file=sys.stderr)
            return UNEXPECTED
        return AS_EXPECTED
    except TidelogError as error:
        print(f"unexpected: {error}", file=sys.stderr)
        return UNEXPECTED
    return UNEXPECTED if must_refuse else AS_EXPECTED


def use_inherited(clients: Sequence[Producer | AdminClient]) -> int:
    """Use what the parent made."""
    for client in clients:
        if judge(partial(use_client, client), must_refuse=True) != AS_EXPECTED:
            return UNEXPECTED
        call = client.begin_transaction if isinstance(client, Producer) else client.describe_cluster
        if judge(call, must_refuse=True) != AS_EXPECTED:
            return UNEXPECTED
        client.close()
    return AS_EXPECTED


def use_client(client: Producer | AdminClient) -> None:
    """A first use, such as a worker would make of it."""
    if isinstance(client, Producer):
        client.send("forks", b"inherited").get(CHILD_SECONDS_MAX)
    else:
        client.list_topics()


def child_main(address: str, must_refuse: bool) -> None:
    """The target of spawn and forkserver, and of fork with a fresh client."""
    sys.exit(use_fresh(address, must_refuse))


def child_with(clients: Sequence[Producer | AdminClient]) -> None:
    """The target of fork with inherited clients."""
    sys.exit(use_inherited(clients))


# The parent of a few children.

Context = (
    multiprocessing.context.ForkContext
    | multiprocessing.context.ForkServerContext
    | multiprocessing.context.SpawnContext
)


def context_of(method: str) -> Context:
    """The way to start children; typed, unlike multiprocessing.get_context of a variable."""
    if method == "fork":
        return multiprocessing.get_context("fork")
    if method == "forkserver":
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


class Parent:
    """One process that starts children one after the other."""

    def __init__(self, cell: Cell, address: str) -> None:
        self.cell = cell
        self.address = address
        self.count = Count()
        self.clients: list[Producer | AdminClient] = [
            Producer(bootstrap_servers=address, client_id="parent"),
            AdminClient(bootstrap_servers=address, client_id="parent"),
        ]
        self._is_over = threading.Event()
        self._traffic: threading.Thread | None = None

    def prepare(self) -> None:
        """Bring the parent into the cell's state."""
        if self.cell.parent == "grpc":
            producer, admin = self.clients
            assert isinstance(producer, Producer), "the first client is the producer"
            assert isinstance(admin, AdminClient), "the second client is the admin client"
            producer.send("forks", b"from the parent").get(CHILD_SECONDS_MAX)
            admin.list_topics()
            if self.cell.client != "closed":
                self._traffic = threading.Thread(target=self._keep_busy, args=(producer,))
                self._traffic.start()
        if self.cell.client == "closed":
            for client in self.clients:
                client.close()

    def finish(self) -> None:
        self._is_over.set()
        if self._traffic is not None:
            self._traffic.join()
        for client in self.clients:
            client.close()

    def _keep_busy(self, producer: Producer) -> None:
        """Forks meet the locks of a client at work."""
        while not self._is_over.wait(0.002):
            producer.send("forks", b"busy")

    def start_child(self, number: int) -> int | None:
        """One child; an exit code only in a child of os.fork, which must return with it."""
        if self.cell.method == "fork" and number % 2:
            return self._plain_fork()
        context = context_of(self.cell.method)
        if self.cell.client == "inherited" and self.cell.method != "fork":
            self._pickle_clients(context)
            return None
        if self.cell.client == "inherited":
            process = context.Process(target=child_with, args=(self.clients,))
        else:
            process = context.Process(target=child_main, args=(self.address, self.cell.must_refuse))
        process.start()
        process.join(CHILD_SECONDS_MAX)
        if process.exitcode is None:
            self.count.hung += 1
            process.kill()
            process.join()
            return None
        self._note(process.exitcode)
        return None

    def _pickle_clients(self, context: Context) -> None:
        """spawn and forkserver pickle what they hand over: there it must be refused."""

        def start() -> None:
            process = context.Process(target=child_with, args=(self.clients,))
            process.start()

        try:
            start()
        except ForkedClientError:
            self._note(AS_EXPECTED)
            return
        self._note(UNEXPECTED)

    def _plain_fork(self) -> int | None:
        child = os.fork()
        if child == 0:
            if self.cell.client == "inherited":
                return use_inherited(self.clients)
            if self.cell.client == "closed":
                code = judge(self._use_closed, must_refuse=True)
                if code != AS_EXPECTED:
                    return code
            return use_fresh(self.address, self.cell.must_refuse)
        self._wait_for(child)
        return None

    def _use_closed(self) -> None:
        admin = self.clients[1]
        assert isinstance(admin, AdminClient), "the second client is the admin client"
        admin.list_topics()

    def _wait_for(self, child: int) -> None:
        watched = os.pidfd_open(child)
        try:
            ready, _, _ = select.select([watched], [], [], CHILD_SECONDS_MAX)
        finally:
            os.close(watched)
        if not ready:
            self.count.hung += 1
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        _, status = os.waitpid(child, 0)
        self._note(os.waitstatus_to_exitcode(status))

    def _note(self, code: int) -> None:
        if code == AS_EXPECTED:
            self.count.expected += 1
        elif code == UNEXPECTED:
            self.count.unexpected += 1
        else:
            print(f"child of {self.cell} ended with {code}", file=sys.stderr)
            self.count.crashed += 1


def run_parent(cell: Cell, address: str, children: int) -> int:
    """The `--case` command: prints the counts as JSON."""
    parent = Parent(cell, address)
    parent.prepare()
    for number in range(children):
        code = parent.start_child(number)
        if code is not None:
            return code
    parent.finish()
    print(msgspec.json.encode(parent.count).decode(), flush=True)
    return 0


# The whole.


def run_case(cell: Cell, address: str, children: int) -> Count:
    """One parent process with its children."""
    command = [
        *(sys.executable, "-m", "tests.client.support.fork_matrix", "--bootstrap", address),
        *("--case", cell.method, cell.client, cell.parent, "--runs", str(children)),
    ]
    limit = 30 + children * CHILD_SECONDS_MAX
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Count(hung=children)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    lines = done.stdout.decode().splitlines()
    if done.returncode != 0 or not lines:
        return Count(crashed=children)
    return msgspec.json.decode(lines[-1], type=Count)


def run_cell(cell: Cell, address: str, runs: int, parallel: int) -> Count:
    """One cell `runs` times, several parents at a time."""
    sizes = [
        min(CHILDREN_PER_PARENT, runs - begun) for begun in range(0, runs, CHILDREN_PER_PARENT)
    ]
    total = Count()
    with ThreadPoolExecutor(parallel) as pool:
        for count in pool.map(lambda size: run_case(cell, address, size), sizes):
            total.add(count)
    return total


def report(address: str, runs: int, parallel: int) -> int:
    """Run, print one line per cell, judge."""
    began = time.monotonic()
    head = f"{'start':<11}{'client':<11}{'parent':<8}{'due':<20}"
    print(f"{head}{'runs':>5}{'as due':>8}{'wrong':>7}{'hung':>6}{'crashed':>9}")
    well = True
    for cell in [Cell(m, c, p) for m in METHODS for c in CLIENTS for p in PARENTS]:
        count = run_cell(cell, address, runs, parallel)
        due = "ForkedClientError" if cell.must_refuse else "works"
        print(
            f"{cell.method:<11}{cell.client:<11}{cell.parent:<8}{due:<20}"
            f"{count.expected + count.unexpected + count.hung + count.crashed:>5}"
            f"{count.expected:>8}{count.unexpected:>7}{count.hung:>6}{count.crashed:>9}",
            flush=True,
        )
        well = well and runs == count.expected
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if well else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="children per cell")
    parser.add_argument("--parallel", type=int, default=2, help="parents at a time")
    parser.add_argument("--bootstrap", help="a running node; default: one from memory")
    parser.add_argument("--case", nargs=3, metavar=("START", "CLIENT", "PARENT"))
    options = parser.parse_args(arguments)
    if options.case:
        return run_parent(Cell(*options.case), options.bootstrap, options.runs)
    if options.bootstrap:
        return report(options.bootstrap, options.runs, options.parallel)
    command = [sys.executable, "-m", "tests.client.support.contract_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None, "the server's output is a pipe"
            address = server.stdout.readline().decode().partition(": ")[2].strip()
            return report(address, options.runs, options.parallel)
        finally:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())

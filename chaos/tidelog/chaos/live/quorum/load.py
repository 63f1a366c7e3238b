"""Concurrent metadata writers and linearizable readers, and what each of them saw.

Owns the load of a run. Two kinds of writers: some set names of their own through any node's client
listener, as programs do; others write registers that they share, straight to the leader and once
each, so that the history of a register is one of single attempts. Readers ask a majority how far
the log is and then any node for what it shows from there on.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.linearizability import Operation
from tidelog.chaos.live.processes.server import ServerProcess
from tidelog.chaos.live.quorum.client import CALL_MS, QuorumClient, has_changed_nothing
from tidelog.chaos.live.quorum.cluster import QuorumCluster
from tidelog.wire.errors import TidelogError

REGISTERS: Final = ("max.message.bytes", "num.partitions", "segment.bytes")
FIRST_VALUE: Final = 2_000
OWN_NAME: Final = "own-{writer}-{number}"
WRITER_PAUSE_SECONDS: Final = 0.01
REGISTER_PAUSE_SECONDS: Final = 0.08
READER_PAUSE_SECONDS: Final = 0.06
FAILED_PAUSE_SECONDS: Final = 0.02
IMAGE_WAIT_SECONDS: Final = 3.0
IMAGE_POLL_SECONDS: Final = 0.01
STOP_SECONDS_MAX: Final = 30.0


class OwnWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One name set once, by one writer."""

    writer: int
    name: str
    number: int
    began_ns: int
    ended_ns: int
    outcome: Outcome
    error: str = ""


class QuorumLoad:
    """`begin`, faults, `end`; then `own_writes` and `operations` are whole."""

    def __init__(
        self,
        cluster: QuorumCluster,
        *,
        writers: int = 3,
        register_writers: int = 2,
        readers: int = 2,
        seed: int = 1,
    ) -> None:
        self._cluster = cluster
        self._client: QuorumClient = cluster.client
        self._random = random.Random(seed)
        self._counts = (writers, register_writers, readers)
        self._values = itertools.count(FIRST_VALUE)
        self._is_ending = False
        self._tasks: list[asyncio.Task[None]] = []
        self._leader: ServerProcess | None = None
        self.own_writes: list[OwnWrite] = []
        self.operations: list[Operation] = []
        self.under_way: dict[int, int] = {}
        """By writer: when the write that has no outcome yet began."""

    @property
    def writer_count(self) -> int:
        """Of names of their own."""
        return self._counts[0]

    @property
    def acknowledged(self) -> int:
        """Names that were set."""
        return sum(each.outcome is Outcome.ACKNOWLEDGED for each in self.own_writes)

    def begin(self) -> None:
        """Start everybody."""
        self._client.ask(self._begin())

    def end(self) -> None:
        """Let each finish its call."""
        self._is_ending = True
        self._client.ask(self._join(), seconds_max=STOP_SECONDS_MAX)

    async def _begin(self) -> None:
        writers, register_writers, readers = self._counts
        self._start(writers, self._write_own)
        self._start(register_writers, self._write_register)
        self._start(readers, self._read)

    def _start(self, count: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        for number in range(count):
            self._tasks.append(asyncio.get_running_loop().create_task(work(number)))

    async def _join(self) -> None:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            for task in self._tasks:
                await task

    def _some_node(self, but: ServerProcess | None = None) -> ServerProcess | None:
        """Any; not the one that did not answer, if there is another."""
        running = self._cluster.running()
        nodes = [node for node in running if node is not but] or running
        return self._random.choice(nodes) if nodes else None

    # -- names of one's own ----------------------------------------------------------------------

    async def _write_own(self, writer: int) -> None:
        node = self._some_node()
        for number in itertools.count(1):
            if self._is_ending:
                return
            if node is None or not node.is_running:
                node = self._some_node()
                await asyncio.sleep(FAILED_PAUSE_SECONDS)
                continue
            error = await self._set_own(writer, number, node)
            if error is None:
                await asyncio.sleep(WRITER_PAUSE_SECONDS)
            else:
                node = self._some_node(but=node)
                await asyncio.sleep(FAILED_PAUSE_SECONDS)

    async def _set_own(self, writer: int, number: int, node: ServerProcess) -> TidelogError | None:
        name = OWN_NAME.format(writer=writer, number=number)
        began_ns = self.under_way[writer] = time.monotonic_ns()
        problem: TidelogError | None = None
        try:
            await self._client.set_quota(node.place.client_address, name, number)
            outcome = Outcome.ACKNOWLEDGED
        except TidelogError as error:
            problem, outcome = error, _outcome(error)
        del self.under_way[writer]
        self.own_writes.append(
            OwnWrite(
                writer=writer,
                name=name,
                number=number,
                began_ns=began_ns,
                ended_ns=time.monotonic_ns(),
                outcome=outcome,
                error="" if problem is None else f"{problem.code.name}: {problem.happened}",
            )
        )
        return problem

    # -- registers -------------------------------------------------------------------------------

    async def _write_register(self, writer: int) -> None:
        while not self._is_ending:
            node = self._leader if self._leader in self._cluster.running() else self._some_node()
            if node is None:
                await asyncio.sleep(FAILED_PAUSE_SECONDS)
                continue
            key, value = self._random.choice(REGISTERS), str(next(self._values))
            began_ns = time.monotonic_ns()
            try:
                await self._client.set_straight(
                    node.place.cluster_address, self._cluster.cluster_id, key, value
                )
                self._leader, outcome = node, Outcome.ACKNOWLEDGED
            except TidelogError as error:
                self._leader, outcome = None, _outcome(error)
            self._note(f"register-writer-{writer}", key, "write", value, began_ns, outcome)
            is_known = outcome is Outcome.ACKNOWLEDGED
            await asyncio.sleep(REGISTER_PAUSE_SECONDS if is_known else FAILED_PAUSE_SECONDS)

    async def _read(self, reader: int) -> None:
        while not self._is_ending:
            began_ns = time.monotonic_ns()
            try:
                settings = await self._read_linearizable()
            except TidelogError:
                settings = None
            if settings is not None:
                for key in REGISTERS:
                    value = settings.get(key)
                    outcome = Outcome.ACKNOWLEDGED
                    self._note(f"reader-{reader}", key, "read", value, began_ns, outcome)
            await asyncio.sleep(READER_PAUSE_SECONDS)

    async def _read_linearizable(self) -> dict[str, str] | None:
        """What any node shows of all that a majority had committed when this began, or more."""
        asked, shown = self._some_node(), self._some_node()
        if asked is None or shown is None:
            return None
        seen = await self._client.describe(asked.place.client_address, CALL_MS)
        end = time.monotonic() + IMAGE_WAIT_SECONDS
        while time.monotonic() < end:
            settings, applied = await self._client.read_settings(
                shown.place.client_address, CALL_MS
            )
            if applied >= seen.commit_index:
                return settings
            await asyncio.sleep(IMAGE_POLL_SECONDS)
        return None

    def _note(
        self, client: str, key: str, name: str, value: str | None, began_ns: int, outcome: Outcome
    ) -> None:
        is_read = name == "read"
        self.operations.append(
            Operation(
                client=client,
                key=key,
                name=name,
                argument=None if is_read else value,
                began_ns=began_ns,
                ended_ns=time.monotonic_ns(),
                outcome=outcome,
                result=value if is_read else None,
            )
        )


def _outcome(error: TidelogError) -> Outcome:
    return Outcome.FAILED if has_changed_nothing(error) else Outcome.INDETERMINATE

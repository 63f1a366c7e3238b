"""A correct log with transactions, small enough to be seen to be right, and processes that use it.

Every process is a generator: it calls something, and yields wherever the world may go on before the
call takes effect, and before its answer arrives. A seed decides who goes on. What the processes saw
is a history of which the checkers must find nothing.
"""

from collections.abc import Generator
from typing import Final

from tidelog.chaos.checkers.transactions import (
    HistoryBuilder,
    TransactionHistory,
    TransactionOutcome,
)
from tidelog.chaos.sim.base.seeds import SeededRandom

Steps = Generator[None, None, None]

PARTITIONS: Final = ("x-0", "x-1", "y-0")

STEPS_MAX: Final = 100_000


class PendingTransaction:
    """A transaction on the side of the log."""

    def __init__(self) -> None:
        self.partitions: set[str] = set()
        self.is_committed: bool | None = None
        self.is_fenced = False

    @property
    def is_complete(self) -> bool:
        """Decided, and marked wherever it has written."""
        return self.is_committed is not None and not self.partitions


class _Partition:
    """Records and markers, one an offset."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, PendingTransaction | None]] = []
        """The value of each record, empty for a marker, and the transaction of both."""
        self.first_open: dict[PendingTransaction, int] = {}
        self.start = 0

    @property
    def stable_end(self) -> int:
        """The last stable offset: nothing at or above it is shown."""
        return min(self.first_open.values(), default=len(self.entries))

    def shown(self, start: int, end: int) -> list[tuple[int, str]]:
        """What a read_committed consumer is handed between two offsets."""
        return [
            (start + at, value)
            for at, (value, pending) in enumerate(self.entries[start:end])
            if value and (pending is None or pending.is_committed)
        ]


class TransactionModel:
    """One run of a seed."""

    def __init__(
        self,
        seed: int,
        *,
        writers: int = 3,
        turns: int = 6,
        partitions: tuple[str, ...] = PARTITIONS,
    ) -> None:
        self.random = SeededRandom(seed, "transactions")
        self.builder = HistoryBuilder()
        self.now_ns = 0
        self.is_cut = False
        """Something waits for ever, and the run was ended."""
        self.names = partitions
        self.partitions = {name: _Partition() for name in partitions}
        self._values = 0
        self.work: list[Steps] = []
        self._owners: dict[str, str] = {}
        """Which subscriber reads a partition."""
        for number in range(writers):
            self.work.append(self._writer(f"w{number}", turns))
        self.work.append(self._plain_writer("plain", turns))
        for number in range(2):
            self.work.append(self.reader(f"r{number}", turns * 2))
        for number in range(2):
            self.work.append(self._subscriber(f"s{number}", turns))

    def run(self) -> TransactionHistory:
        """Until nothing is left to do, and a drain of everything."""
        for _ in range(STEPS_MAX):
            if not self.work:
                break
            work = self.work[self.random.below(len(self.work))]
            # Clocks are coarse now and then: several things happen at the same nanosecond.
            self.now_ns += self.random.below(3)
            if next(work, self) is self:
                self.work.remove(work)
        else:
            self.is_cut = True
        self.settle()
        self.now_ns += 1
        self.builder.assign("drain", dict.fromkeys(self.names, 0), at_ns=self.now_ns)
        ends = {name: each.stable_end for name, each in self.partitions.items()}
        records = {name: each.shown(0, ends[name]) for name, each in self.partitions.items()}
        self.builder.poll(
            "drain",
            records,
            began_ns=self.now_ns,
            ended_ns=self.now_ns + 1,
            ends=ends,
            is_final=True,
        )
        return self.builder.build(at_ns=self.now_ns + 2)

    def settle(self) -> None:
        """What is still open is ended as it was decided."""
        for partition in self.partitions.values():
            for pending in list(partition.first_open):
                self.mark(partition, pending, is_committed=bool(pending.is_committed))

    def pick(self) -> str:
        return self.names[self.random.below(len(self.names))]

    def value(self, process: str) -> str:
        self._values += 1
        return f"{process}.{self._values}"

    def wait(self, most: int = 3) -> Steps:
        for _ in range(self.random.below(most + 1)):
            yield

    def append(self, name: str, value: str, pending: PendingTransaction | None) -> int:
        partition = self.partitions[name]
        partition.entries.append((value, pending))
        offset = len(partition.entries) - 1
        if pending is not None:
            partition.first_open.setdefault(pending, offset)
            pending.partitions.add(name)
        return offset

    def mark(
        self, partition: _Partition, pending: PendingTransaction, *, is_committed: bool
    ) -> None:
        pending.is_committed = is_committed
        partition.entries.append(("", pending))
        partition.first_open.pop(pending, None)

    def coordinator(self, pending: PendingTransaction, *, is_committed: bool) -> Steps:
        """Decides, and marks."""
        assert pending.is_committed is None, "a decision stands"
        pending.is_committed = is_committed
        yield from self.markers(pending)

    def markers(self, pending: PendingTransaction) -> Steps:
        """Writes the markers one after the other, in any order, each in its own time."""
        for name in self.random.shuffled(sorted(pending.partitions)):
            yield from self.wait(6)
            self.mark(self.partitions[name], pending, is_committed=bool(pending.is_committed))
            pending.partitions.discard(name)

    def _writer(self, process: str, turns: int) -> Steps:
        """Transactions that send and poll, one after the other."""
        positions = dict.fromkeys(self.names, 0)
        self.builder.assign(process, positions, at_ns=self.now_ns)
        for _ in range(turns):
            yield from self.wait()
            begun = dict(positions)
            pending = PendingTransaction()
            self.builder.begin(process, at_ns=self.now_ns)
            for _ in range(1 + self.random.below(4)):
                if self.random.chance(0.6):
                    yield from self._sends(process, pending)
                else:
                    yield from self._poll(process, positions, list(self.names))
            yield from self.wait()
            is_done = yield from self._end(process, pending)
            if not is_done and self.random.chance(0.5):
                positions = begun
                self.builder.seek(process, positions, at_ns=self.now_ns)
            # The next transaction is refused until this one is complete.
            while not pending.is_complete:
                yield

    def _sends(self, process: str, pending: PendingTransaction) -> Steps:
        """One to three records on their way at once; the log takes them in their order."""
        on_the_way: list[tuple[str, str]] = []
        for _ in range(1 + self.random.below(3)):
            name, value = self.pick(), self.value(process)
            self.builder.send(process, name, value, at_ns=self.now_ns)
            on_the_way.append((name, value))
            yield from self.wait(1)
        for name, value in on_the_way:
            offset = self.append(name, value, pending)
            yield from self.wait(2)
            if self.random.chance(0.9):
                self.builder.acknowledge(process, value, offset=offset, at_ns=self.now_ns)

    def _end(self, process: str, pending: PendingTransaction) -> Generator[None, None, bool]:
        """Commit or abort; says whether it is known to have committed."""
        if self.random.chance(0.25):
            self.builder.abort(process, at_ns=self.now_ns)
            yield from self.wait()
            self.work.append(self.coordinator(pending, is_committed=False))
            yield
            while pending.is_committed is None:
                yield
            self.builder.end(process, TransactionOutcome.ABORTED, at_ns=self.now_ns)
            return False
        self.builder.commit(process, at_ns=self.now_ns)
        yield from self.wait()
        if self.random.chance(0.2):
            # The answer is lost, or the call: it is decided later, this way or that.
            self.builder.end(process, TransactionOutcome.UNKNOWN, at_ns=self.now_ns)
            yield from self.wait(10)
            self.work.append(self.coordinator(pending, is_committed=self.random.chance(0.5)))
            yield
            return False
        self.work.append(self.coordinator(pending, is_committed=True))
        while pending.is_committed is None:
            yield
        yield from self.wait()
        self.builder.end(process, TransactionOutcome.COMMITTED, at_ns=self.now_ns)
        return True

    def _plain_writer(self, process: str, turns: int) -> Steps:
        """Sends outside any transaction."""
        for _ in range(turns):
            yield from self.wait(6)
            name, value = self.pick(), self.value(process)
            self.builder.send(process, name, value, at_ns=self.now_ns)
            yield from self.wait()
            if self.random.chance(0.1):
                self.builder.give_up(value, TransactionOutcome.UNKNOWN, at_ns=self.now_ns)
                if self.random.chance(0.5):
                    self.append(name, value, None)
                continue
            offset = self.append(name, value, None)
            yield from self.wait()
            self.builder.acknowledge(process, value, offset=offset, at_ns=self.now_ns)

    def reader(self, process: str, turns: int) -> Steps:
        """Polls of assigned partitions, reads to the end among them, and seeks."""
        chosen = self.random.shuffled(list(self.names))[: 1 + self.random.below(3)]
        positions = dict.fromkeys(chosen, 0)
        self.builder.assign(process, positions, at_ns=self.now_ns)
        for _ in range(turns):
            yield from self.wait()
            if self.random.chance(0.1):
                positions = {name: self.random.below(at + 1) for name, at in positions.items()}
                self.builder.seek(process, positions, at_ns=self.now_ns)
            if self.random.chance(0.3):
                yield from self._read_to_end(process, positions)
            else:
                yield from self._poll(process, positions, chosen)

    def _subscriber(self, process: str, turns: int) -> Steps:
        """A member of a group: partitions come and go, and are read on from what was committed."""
        self.builder.subscribe(process, self.names, at_ns=self.now_ns)
        positions: dict[str, int] = {}
        for _ in range(turns):
            yield from self.wait()
            rebalanced: list[str] = []
            for name in self.names:
                if self._owners.get(name) == process:
                    continue
                if positions.pop(name, None) is not None:
                    rebalanced.append(name)
                if self.random.chance(0.4):
                    self._owners[name] = process
                    # What was committed may lie before or behind what others have read.
                    end = self.partitions[name].stable_end
                    positions[name] = self.random.below(end + 1)
                    rebalanced.append(name)
            yield from self._poll(process, positions, list(positions), rebalanced=rebalanced)

    def _poll(
        self,
        process: str,
        positions: dict[str, int],
        names: list[str],
        *,
        rebalanced: list[str] | None = None,
    ) -> Steps:
        """Each partition is read on at a moment of its own, as far as a broker likes."""
        began_ns = self.now_ns
        yield from self.wait(2)
        records: dict[str, list[tuple[int, str]]] = {}
        for name in self.random.shuffled(names):
            yield from self.wait(2)
            end = self.partitions[name].stable_end
            if end <= positions[name] or self.random.chance(0.2):
                continue
            end = self.random.between(positions[name] + 1, end)
            records[name] = self.partitions[name].shown(positions[name], end)
            positions[name] = end
        yield from self.wait(2)
        self.builder.poll(
            process,
            records,
            began_ns=began_ns,
            ended_ns=self.now_ns,
            rebalanced=rebalanced or (),
        )

    def _read_to_end(self, process: str, positions: dict[str, int]) -> Steps:
        """Asks for the ends, and reads up to them; by then there may be more, and it may get it."""
        began_ns = self.now_ns
        yield from self.wait(2)
        ends: dict[str, int] = {}
        for name in positions:
            ends[name] = self.partitions[name].stable_end
            yield from self.wait(1)
        records: dict[str, list[tuple[int, str]]] = {}
        for name, end in ends.items():
            if end > positions[name]:
                records[name] = self.partitions[name].shown(positions[name], end)
                positions[name] = end
        self.builder.poll(process, records, began_ns=began_ns, ended_ns=self.now_ns, ends=ends)

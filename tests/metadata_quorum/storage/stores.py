"""A quorum directory on a simulated machine, to be filled, killed, damaged and opened again.

Owns the world that it lives in. Nothing goes wrong in it unless a test says so.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from tests.metadata_quorum.storage.storage_steps import (
    MEMBER,
    MEMBERS,
    entry,
    format_,
    open_,
    persist,
)
from tidelog.chaos.sim import FaultKind, SimulatedPorts, World
from tidelog.chaos.sim.ports.disk import SimulatedDisk
from tidelog.chaos.sim.ports.medium import Inode, Medium
from tidelog.chaos.sim.world.process import Process
from tidelog.metadata_quorum.raft.types import Entry, HardState, MemberId, Recovered, SnapshotId
from tidelog.metadata_quorum.storage.quorum_storage import QuorumStorageFiles
from tidelog.ports import Append, Disk, File
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex, Term

_T = TypeVar("_T")
Files = dict[str, bytes]
FETCHED: Final = SnapshotId(LogIndex(20), Term(2))


async def _idle(ports: SimulatedPorts) -> None:
    del ports
    await asyncio.Event().wait()


class Store:
    """One directory; a new process opens it after each `kill` or `crash`."""

    def __init__(self, chances: dict[str, float] | None = None, *, seed: int = 0) -> None:
        kinds = {FaultKind(name): chance for name, chance in (chances or {}).items()}
        self.world = World(seed, enabled=kinds, probabilities=kinds)
        self.machine = self.world.machine("node")
        self._process: Process | None = None
        self._lives = 0

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    @property
    def medium(self) -> Medium:
        """The directory's bytes."""
        return self.machine.medium("quorum")

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Let the world go until the work is done."""
        return self.world.run(work)

    def disk(self) -> SimulatedDisk:
        """The directory as a new process has it; the one before is dead."""
        self.kill()
        self._lives += 1
        self._process = self.machine.start(f"node{self._lives}", _idle)
        return self._process.ports.open_disk("quorum")

    def kill(self) -> None:
        """The process dies; the page cache stays."""
        if self._process is not None:
            self._process.kill()

    def crash(self) -> None:
        """The machine dies."""
        self.machine.crash()

    @property
    def boot_id(self) -> str:
        """Of the machine as it runs now."""
        return self.machine.boot_id

    async def open(self) -> QuorumStorageFiles:
        """By a new process."""
        return await open_(self.disk(), self.boot_id)

    def suffer(self, *names: str) -> None:
        """These faults happen from now on, as likely as the store was made with; no others."""
        self.world.faults.active = {FaultKind(name): None for name in names}

    def files(self) -> Files:
        """Every file as it is seen."""
        return {path: bytes(inode.seen) for path, inode in self.medium.files()}

    def put(self, files: Files) -> None:
        """These files, durable, and no other ones."""
        self.kill()
        self.machine.media["quorum"] = Medium("node:quorum")
        for path, content in files.items():
            inode = Inode()
            inode.seen, inode.durable = bytearray(content), bytearray(content)
            inode.certain_bytes = len(content)
            self.medium.root.seen[path] = self.medium.root.durable[path] = inode


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What a storage was told and has acknowledged."""

    entries: tuple[Entry, ...]
    """From entry 1 on."""
    term: Term
    vote: MemberId | None
    marked_index: LogIndex
    """Entries up to here were settled."""

    @property
    def end_index(self) -> LogIndex:
        """The last entry."""
        return self.entries[-1].index


async def fill(store: Store, *, is_settled: bool) -> Truth:
    """A little of everything: several segments, a cut, votes, snapshots, half a fetch."""
    await format_(store.disk())
    storage = await store.open()
    log = {index: entry(index, 1, b"entry %d " % index * 4) for index in range(1, 10)}
    await storage.perform([persist(log[1], log[2], term=1, vote=True)])
    await storage.settle()
    for index in range(3, 10):
        await storage.perform([persist(log[index])])
    later = {index: entry(index, 2, b"later %d " % index * 3) for index in range(8, 14)}
    await storage.perform([persist(later[8], cut=8, term=2, vote=True)])
    log = {index: log[index] for index in range(1, 8)} | later
    await storage.save_snapshot(SnapshotId(LogIndex(4), Term(1)), MEMBERS, [b"state", b"of 3"])
    await storage.save_snapshot(SnapshotId(LogIndex(7), Term(1)), MEMBERS, [b"state", b"of 6"])
    await storage.trim(LogIndex(6))
    await storage.begin_fetched(FETCHED, 1_000)
    await storage.write_fetched(FETCHED, 0, b"a front" * 8)
    await storage.perform([persist(later[9], later[10])])
    await storage.settle()
    await storage.perform([persist(later[11])])
    await storage.perform([persist(later[12], later[13])])
    if is_settled:
        await storage.settle()
    return Truth(
        entries=tuple(log.values()),
        term=Term(2),
        vote=MEMBER,
        marked_index=LogIndex(13 if is_settled else 10),
    )


def check(recovered: Recovered, truth: Truth, *, end_index_min: int | None = None) -> bool:
    """Everything is there, or what is missing is known; returns whether everything is there.

    `end_index_min`: the log may end there already, without a repair.
    """
    state, snapshot = recovered.hard_state, recovered.snapshot
    assert (state.term, state.voted_for) == (truth.term, truth.vote), state
    base = snapshot.last_index if snapshot is not None else 0
    found = recovered.entries
    first = found[0].index if found else base + 1
    assert first <= base + 1, f"entries {base + 1} to {first - 1} are in no snapshot"
    assert list(found) == list(truth.entries[first - 1 : first - 1 + len(found)]), found
    end = max(base, found[-1].index if found else 0)
    if state.repair is None:
        assert truth.end_index >= end >= (end_index_min or truth.end_index), f"ends at {end}"
        return True
    assert state.repair.from_index == end + 1, state.repair
    last = (state.repair.last_index, state.repair.last_term)
    assert last == (truth.end_index, truth.entries[-1].term), state.repair
    return False


async def repair(storage: QuorumStorageFiles, truth: Truth) -> None:
    """What a leader's entries do after damage."""
    recovered = storage.recovered
    if recovered.hard_state.repair is None:
        return
    first = recovered.hard_state.repair.from_index
    mended = persist(*truth.entries[first - 1 :], cut=first)
    state = HardState(term=truth.term, voted_for=truth.vote)
    await storage.perform([msgspec.structs.replace(mended, hard_state=state)])


async def open_checked(
    store: Store, truth: Truth, *, end_index_min: int | None = None
) -> TidelogError | bool:
    """Open twice, mend, open again; returns whether the log was whole, or how it was refused."""
    try:
        storage = await store.open()
    except TidelogError as error:
        return error
    is_whole = check(storage.recovered, truth, end_index_min=end_index_min)
    again = await store.open()
    assert again.recovered == storage.recovered, "a second start finds the same"
    await repair(again, truth)
    mended = (await store.open()).recovered
    assert mended.hard_state.repair is None, "the repair is over"
    check(mended, truth, end_index_min=end_index_min)
    return is_whole


class CrashedError(Exception):
    """The step at which everything stops; no handler of the storage may catch it."""


class StepDisk:
    """A disk whose nth change is the last thing that happens; 0: it goes on for ever."""

    def __init__(self, disk: SimulatedDisk, last_step: int = 0, *, is_done: bool = True) -> None:
        self._disk = disk
        self._last_step = last_step
        self._is_done = is_done
        """Whether the last step takes effect."""
        self.steps: list[str] = []

    @property
    def name(self) -> str:
        return self._disk.name

    async def open(self, path: str, *, create: bool = False) -> File:
        if not create:
            return await self._disk.open(path)
        return await self._step(f"create {path}", lambda: self._disk.open(path, create=True))

    async def close(self, file: File) -> None:
        await self._disk.close(file)

    async def append(self, appends: Sequence[Append]) -> None:
        paths = ", ".join(append.file.path for append in appends)
        await self._step(f"append {paths}", lambda: self._disk.append(appends))

    async def read(self, file: File, byte_position: int, length_bytes: int) -> bytes:
        return await self._disk.read(file, byte_position, length_bytes)

    async def truncate(self, file: File, size_bytes: int) -> None:
        await self._step(f"truncate {file.path}", lambda: self._disk.truncate(file, size_bytes))

    async def flush(self, files: Sequence[File], *, directories: Sequence[str] = ()) -> None:
        told = ", ".join([*(file.path for file in files), *(f"{each}/" for each in directories)])
        await self._step(f"flush {told}", lambda: self._disk.flush(files, directories=directories))

    async def list(self, directory: str = "") -> list[str]:
        return await self._disk.list(directory)

    async def make_directory(self, path: str) -> None:
        await self._disk.make_directory(path)

    async def rename(self, old: str, new: str) -> None:
        await self._step(f"rename {old} {new}", lambda: self._disk.rename(old, new))

    async def remove(self, path: str) -> None:
        await self._step(f"remove {path}", lambda: self._disk.remove(path))

    async def free_bytes(self) -> int:
        return await self._disk.free_bytes()

    async def shutdown(self) -> None:
        await self._disk.shutdown()

    async def _step(self, told: str, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        self.steps.append(told)
        is_last = len(self.steps) == self._last_step
        if is_last and not self._is_done:
            raise CrashedError(told)
        assert not self._last_step or len(self.steps) <= self._last_step, f"{told} after the end"
        result = await work()
        if is_last:
            raise CrashedError(told)
        return result


def as_disk(disk: StepDisk) -> Disk:
    """The type checker holds it to the port."""
    return disk


def places(files: Files, step: int) -> Iterable[tuple[str, int]]:
    """Every `step`th byte of every file, each file from another one on."""
    for number, (path, content) in enumerate(sorted(files.items())):
        for position in range(number % step, len(content), step):
            yield path, position

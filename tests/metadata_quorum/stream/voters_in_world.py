"""Voters that only serve the metadata stream, and an observer of them, in a simulated world."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, cast

from tidelog.chaos.sim import SimulatedPorts, World
from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.metadata_quorum.raft.types import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberId,
    Members,
    NodeId,
    Snapshot,
    SnapshotId,
)
from tidelog.metadata_quorum.stream.observer import MetadataObserver
from tidelog.metadata_quorum.stream.quorum_view import Addresses
from tidelog.metadata_quorum.stream.server import METHOD, MetadataStreamServer
from tidelog.ports import Listener, RequestContext, Stream, StreamMethod
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

CLUSTER = "c1"
PIECE_BYTES = 10


def member(number: int) -> Member:
    return Member(id=MemberId(NodeId(number), bytes([number]) * 16), address=f"v{number}:1")


def entry(index: int, term: int = 1, data: bytes | None = None) -> Entry:
    content = b"%d" % index if data is None else data
    return Entry(index=LogIndex(index), term=Term(term), kind=EntryKind.COMMAND, data=content)


class FakeQuorum:
    """A committed log that a test writes by hand; the first `start - 1` entries are compacted."""

    def __init__(self, number: int = 1) -> None:
        self.id = member(number).id
        self.entries: list[Entry] = []
        self.start = 1
        self.commit_index = 0
        self.leader: MemberId | None = member(1).id
        self.term = 1
        self.applied_max = 1_000_000
        """What is committed beyond is not applied here."""
        self.is_current = False
        """Whether it knows that it has all that is committed."""
        self.read_count = 0
        self._changes = 0
        self._news = asyncio.Event()

    def commit(self, *entries: Entry) -> None:
        """All of them, at once."""
        self.entries += entries
        self.commit_index = self.entries[-1].index
        self.change()

    def change(self) -> None:
        """Wake whoever waits."""
        self._changes += 1
        self._news.set()
        self._news = asyncio.Event()

    def compact(self, start: int) -> None:
        """Entries before it are in a snapshot only."""
        self.start = start
        self.change()

    def describe(self) -> Description:
        """Only what the stream looks at is true."""
        members = Members((member(1), member(2)))
        return Description(
            id=self.id,
            role=Role.FOLLOWER,
            term=Term(self.term),
            leader=self.leader,
            hard_state=HardState(),
            persisted_state=HardState(),
            last_index=LogIndex(len(self.entries)),
            last_term=Term(0),
            persisted_index=LogIndex(0),
            commit_index=LogIndex(self.commit_index),
            applied_index=LogIndex(self.commit_index),
            log_start_index=LogIndex(self.start),
            snapshot=None,
            members=members,
            members_index=LogIndex(0),
            committed_members=members,
            is_repairing=False,
            transfer_to=None,
            progress=(),
        )

    async def wait_change(self, seen: int) -> int:
        """As the port says."""
        while self._changes <= seen:
            await self._news.wait()
        return self._changes

    async def read_index(self, *, timeout_ms: int) -> LogIndex:
        """As the port says."""
        self.read_count += 1
        if not self.is_current:
            await asyncio.sleep(timeout_ms / 1000)
            raise TidelogError(ErrorCode.DEADLINE_EXCEEDED, tried="read", happened="no majority")
        return LogIndex(self.commit_index)

    def committed_entries(self, first_index: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """As the port says."""
        applied_index = min(self.commit_index, self.applied_max)
        if first_index > applied_index:
            return ()
        if first_index < self.start:
            return None
        found: list[Entry] = []
        size = 0
        for each in self.entries[first_index - 1 : applied_index]:
            size += len(each.data)
            if found and size > bytes_max:
                break
            found.append(each)
        return found

    def newest_snapshot(self) -> Snapshot | None:
        """Of all that is compacted."""
        if self.start == 1:
            return None
        return Snapshot(
            id=SnapshotId(LogIndex(self.start), self.entries[self.start - 2].term),
            members=Members((member(1), member(2))),
            size_bytes=len(self._state()),
        )

    async def snapshot_pieces(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """In small pieces, with a pause between them."""
        state = self._state()
        for position in range(0, len(state), PIECE_BYTES):
            yield state[position : position + PIECE_BYTES]
            await asyncio.sleep(0.01)

    def _state(self) -> bytes:
        term = self.entries[self.start - 2].term
        names = [each.data for each in self.entries[: self.start - 1]]
        return b"%d %d|" % (self.start, term) + b",".join(names)


def decode_snapshot(data: bytes) -> tuple[Snapshot, Sequence[bytes]]:
    """What `FakeQuorum` made."""
    head, _, rest = data.partition(b"|")
    end_index, term = (int(each) for each in head.split())
    snapshot = Snapshot(
        id=SnapshotId(LogIndex(end_index), Term(term)),
        members=Members((member(1), member(2))),
        size_bytes=len(data),
    )
    return snapshot, rest.split(b",")


class Seen:
    """A state machine that writes down what it is given."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.restored = 0

    def apply(self, entries: Sequence[Entry]) -> None:
        """Remember them."""
        self.values += [each.data for each in entries]

    def capture(self) -> Callable[[], Sequence[bytes]]:
        """Nobody asks."""
        raise AssertionError

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """Replace all."""
        del snapshot
        self.restored += 1
        self.values = list(state)


class Stage:
    """A world with voters and one observer."""

    def __init__(self) -> None:
        self.world = World(7)
        self.seen = Seen()
        self.servers: dict[int, MetadataStreamServer] = {}
        self.observer: MetadataObserver | None = None
        self.error: Exception | None = None

    def start_server(
        self, name: str, observe: Callable[[RequestContext, Stream], Coroutine[Any, Any, None]]
    ) -> None:
        """Something else serves the stream at `<name>:1`."""

        async def live(ports: SimulatedPorts) -> None:
            listener = Listener(name="cluster", bind=f"{name}:1")
            await ports.network.serve(listener, {METHOD: StreamMethod(observe)})
            await asyncio.Event().wait()

        self.world.machine(name).start(name, live)

    def start_voter(self, quorum: FakeQuorum, *, cluster_id: str = CLUSTER) -> None:
        """Serve the stream of this log at `v<number>:1`."""
        number = quorum.id.node_id

        async def live(ports: SimulatedPorts) -> None:
            server = MetadataStreamServer(cast("Quorum", quorum), cluster_id=cluster_id)
            self.servers[number] = server
            await ports.network.serve(
                Listener(name="cluster", bind=f"v{number}:1"),
                {METHOD: StreamMethod(server.observe)},
            )
            await asyncio.Event().wait()

        self.world.machine(f"v{number}").start(f"v{number}", live)

    def start_observer(self, *bootstrap_servers: str) -> None:
        """Follow whoever is there."""

        async def live(ports: SimulatedPorts) -> None:
            self.observer = MetadataObserver(
                ports.network,
                ports.clock,
                self.seen,
                Addresses(bootstrap_servers=bootstrap_servers),
                cluster_id=CLUSTER,
                node_id=NodeId(9),
                decode_snapshot=decode_snapshot,
            )
            try:
                await self.observer.run()
            except Exception as error:
                self.error = error
                raise

        self.world.machine("observer").start("observer", live)

    def has_ended(self) -> bool:
        """Whether the observer gave up."""
        return self.error is not None

    def kill_voter(self, number: int) -> None:
        """Without a word."""
        self.world.machine(f"v{number}").processes[f"v{number}"].kill()

    async def wait(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        """Until it holds."""
        for _ in range(int(seconds * 100)):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came to that")

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Play, then look for bugs that nobody saw."""
        try:
            self.world.run(work)
            assert self.world.findings() == []
        finally:
            self.world.close()

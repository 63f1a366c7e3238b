"""Around the real core and the real storage of a node: everything that passes is told to the watch.

It must never change what passes, nor its order.
"""

from collections.abc import Callable, Sequence

from tidelog.chaos.checkers.raft.board import Seen
from tidelog.chaos.checkers.raft.invariants import RaftWatch
from tidelog.metadata_quorum.quorum.port import QuorumStorage
from tidelog.metadata_quorum.raft.core_port import Core, Description
from tidelog.metadata_quorum.raft.effects import (
    Answer,
    Apply,
    Effect,
    Persist,
    ReadAt,
    ResetLog,
    Role,
    RoleChanged,
    Send,
    TrimLog,
)
from tidelog.metadata_quorum.raft.inputs import Input, PeerDied, Read
from tidelog.metadata_quorum.raft.messages import Message
from tidelog.metadata_quorum.raft.types import (
    MemberId,
    Members,
    Recovered,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term

OnRole = Callable[[Role, str], None]


class WatchedCore:
    """Implements `core_port.Core`."""

    def __init__(self, core: Core, watch: RaftWatch, seen: Seen, on_role: OnRole) -> None:
        self._core = core
        self._watch = watch
        self._seen = seen
        self._on_role = on_role

    def tick(self, now_ms: int) -> list[Effect]:
        """Time may have passed."""
        self._seen.now_ms = now_ms
        return self._observe(self._core.tick(now_ms), "tick")

    def step(self, message: Message) -> list[Effect]:
        """A message of another member."""
        self._watch.on_heard(self._seen, message)
        return self._observe(self._core.step(message), str(message.__struct_config__.tag))

    def give(self, given: Input) -> list[Effect]:
        """A request or a completion."""
        if isinstance(given, Read):
            self._watch.on_read_asked(self._seen, given.request_id)
        elif isinstance(given, PeerDied):
            description = self._seen.description
            leader = None if description is None else description.leader
            if leader is not None and leader.node_id == given.node_id:
                self._watch.on_death_hint(self._seen)
        return self._observe(self._core.give(given), str(given.__struct_config__.tag))

    def term_at(self, index: LogIndex) -> Term | None:
        """As the core says."""
        return self._core.term_at(index)

    def describe(self) -> Description:
        """As the core says."""
        return self._core.describe()

    def _observe(self, effects: list[Effect], cause: str) -> list[Effect]:
        if not effects:
            return effects
        watch, seen = self._watch, self._seen
        for effect in effects:
            if isinstance(effect, Persist | ResetLog):
                watch.on_asked(seen, effect)
        watch.on_stepped(seen, self._core.describe())
        for effect in effects:
            match effect:
                case Send(message=message):
                    watch.on_sent(seen, message)
                case Apply():
                    watch.on_applied(seen, effect)
                case TrimLog(first_index=first_index):
                    watch.on_trimmed(seen, first_index)
                case RoleChanged(role=role):
                    self._on_role(role, cause)
                case Answer(request_id=request_id, outcome=ReadAt(index=index)):
                    watch.on_read_answered(seen, request_id, index)
                case _:
                    pass
        return effects


class WatchedStorage:
    """Implements `port.QuorumStorage`: what has returned is what was promised."""

    def __init__(
        self,
        storage: QuorumStorage,
        watch: RaftWatch,
        seen: Seen,
        on_settled: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._watch = watch
        self._seen = seen
        self._on_settled = on_settled

    @property
    def member_id(self) -> MemberId:
        """As the storage says."""
        return self._storage.member_id

    @property
    def cluster_id(self) -> str:
        """As the storage says."""
        return self._storage.cluster_id

    @property
    def recovered(self) -> Recovered:
        """As the storage says."""
        return self._storage.recovered

    async def perform(self, effects: Sequence[Persist | ResetLog]) -> None:
        """Durable at return."""
        effects = list(effects)
        await self._storage.perform(effects)
        self._watch.on_flushed(self._seen, effects)

    async def settle(self) -> None:
        """From here on damage to what was written is told from a torn tail."""
        await self._storage.settle()
        self._on_settled()

    async def trim(self, first_index: LogIndex) -> None:
        """As asked."""
        await self._storage.trim(first_index)

    async def save_snapshot(
        self, snapshot_id: SnapshotId, members: Members, state: Sequence[bytes]
    ) -> Snapshot:
        """Durable at return."""
        snapshot = await self._storage.save_snapshot(snapshot_id, members, state)
        self._watch.on_snapshot(self._seen, snapshot)
        return snapshot

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        """As asked."""
        return await self._storage.begin_fetched(snapshot_id, size_bytes)

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """As asked."""
        await self._storage.write_fetched(snapshot_id, position, data)

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """As asked."""
        return await self._storage.finish_fetched(snapshot_id)

    async def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        """As asked."""
        return await self._storage.read_snapshot(snapshot_id, position, length_bytes)

    async def load_state(self, snapshot: Snapshot) -> Sequence[bytes]:
        """As asked."""
        return await self._storage.load_state(snapshot)

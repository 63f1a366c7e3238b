"""A quorum's storage in memory, which outlives its runner as a disk does; faults on demand."""

import asyncio
from collections.abc import Sequence

import msgspec

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import (
    Entry,
    HardState,
    MemberId,
    Members,
    Recovered,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex


class MemoryStorage:
    """Fulfils `QuorumStorage`."""

    def __init__(self, member_id: MemberId, bootstrap: Members, cluster_id: str = "test") -> None:
        self.member_id = member_id
        self.cluster_id = cluster_id
        self.bootstrap = bootstrap
        self.hard_state = HardState()
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None
        self.files: dict[SnapshotId, tuple[bytes, tuple[bytes, ...], Members]] = {}
        self.is_rotten = False
        """Whether the newest snapshot's file is damaged."""
        self.fetched = bytearray()
        self.fetching: SnapshotId | None = None
        self.members_of_fetched: Members = bootstrap
        self.refusal: ErrorCode | None = None
        """What every write raises."""
        self.slow_load_s = 0.0
        """How long the state of a snapshot takes to load."""
        self.writes_under_way = 0
        self.settled = 0

    @property
    def recovered(self) -> Recovered:
        return Recovered(
            hard_state=self.hard_state,
            snapshot=self.snapshot,
            bootstrap=self.bootstrap,
            entries=tuple(self.entries),
        )

    async def perform(self, effects: Sequence[Persist | ResetLog]) -> None:
        await self._turn()
        for effect in effects:
            if isinstance(effect, ResetLog):
                self.entries.clear()
                self.snapshot = effect.snapshot
                self.hard_state = effect.hard_state
                continue
            if effect.truncate_from is not None:
                self._cut(effect.truncate_from)
            for entry in effect.entries:
                assert entry.index == self.last_index + 1, "storage appends without gaps"
                self.entries.append(entry)
            if effect.hard_state is not None:
                assert effect.hard_state.term >= self.hard_state.term, "a term never falls"
                self.hard_state = effect.hard_state

    @property
    def last_index(self) -> int:
        if self.entries:
            return self.entries[-1].index
        return 0 if self.snapshot is None else self.snapshot.last_index

    def _cut(self, from_index: LogIndex) -> None:
        self.entries = [entry for entry in self.entries if entry.index < from_index]

    async def settle(self) -> None:
        self.settled += 1

    async def trim(self, first_index: LogIndex) -> None:
        await self._turn()
        self.entries = [entry for entry in self.entries if entry.index >= first_index]

    async def save_snapshot(
        self, snapshot_id: SnapshotId, members: Members, state: Sequence[bytes]
    ) -> Snapshot:
        await self._turn()
        data = msgspec.msgpack.encode(tuple(state))
        self.files = {snapshot_id: (data, tuple(state), members)}
        self.is_rotten = False
        self.snapshot = Snapshot(id=snapshot_id, members=members, size_bytes=len(data))
        return self.snapshot

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        await self._turn()
        if self.fetching != snapshot_id:
            self.fetching = snapshot_id
            self.fetched.clear()
        return len(self.fetched)

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        await self._turn()
        assert snapshot_id == self.fetching, "one fetch at a time"
        assert position == len(self.fetched), "pieces come in order"
        self.fetched += data

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        await self._turn()
        data = bytes(self.fetched)
        state = msgspec.msgpack.decode(data, type=tuple[bytes, ...])
        self.files = {snapshot_id: (data, state, self.members_of_fetched)}
        self.fetching = None
        return Snapshot(id=snapshot_id, members=self.members_of_fetched, size_bytes=len(data))

    async def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        found = self.files.get(snapshot_id)
        if found is None or (self.is_rotten and position == 0):
            return None
        return found[0][position : position + length_bytes], len(found[0])

    async def load_state(self, snapshot: Snapshot) -> Sequence[bytes]:
        await asyncio.sleep(self.slow_load_s)
        return self.files[snapshot.id][1]

    async def _turn(self) -> None:
        """One write at a time, and a moment of it."""
        assert self.writes_under_way == 0, "writes come one at a time"
        self.writes_under_way += 1
        await asyncio.sleep(0)
        self.writes_under_way -= 1
        if self.refusal is not None:
            raise TidelogError(self.refusal, tried="write", happened="the test wants it so")

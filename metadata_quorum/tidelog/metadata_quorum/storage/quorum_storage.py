"""The storage of one member, over one directory of its own: what the runner persists through."""

from collections.abc import Sequence

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import (
    MemberId,
    Members,
    Recovered,
    Snapshot,
    SnapshotId,
)
from tidelog.metadata_quorum.storage.identity import QuorumIdentity, read_identity
from tidelog.metadata_quorum.storage.journal import SEGMENT_BYTES_MAX
from tidelog.metadata_quorum.storage.plan import plan
from tidelog.metadata_quorum.storage.recovery import Opened, recover
from tidelog.metadata_quorum.storage.snapshot_format import SnapshotContent
from tidelog.ports import Disk
from tidelog.wire.ids import LogIndex


class QuorumStorageFiles:
    """Made by `open_storage`."""

    def __init__(self, identity: QuorumIdentity, opened: Opened) -> None:
        self._identity = identity
        self._recovered = opened.recovered
        self._journal = opened.journal
        self._marks_file = opened.marks_file
        self._snapshots = opened.snapshots
        snapshot = opened.recovered.snapshot
        self._in_use = snapshot.id if snapshot else None

    @property
    def identity(self) -> QuorumIdentity:
        """Whose directory it is."""
        return self._identity

    @property
    def member_id(self) -> MemberId:
        """The node with this directory."""
        return self._identity.member_id

    @property
    def cluster_id(self) -> str:
        """As it was formatted."""
        return self._identity.cluster_id

    @property
    def bootstrap_command(self) -> bytes:
        """What the first leader proposes first; opaque here."""
        return self._identity.bootstrap_command

    @property
    def recovered(self) -> Recovered:
        """What was found when the directory was opened."""
        return self._recovered

    async def perform(self, effects: Sequence[Persist | ResetLog]) -> None:
        """All of them, in order, with one flush; durable at return."""
        if not effects:
            return
        self._journal.check_usable()
        resets = [effect for effect in effects if isinstance(effect, ResetLog)]
        for effect in resets:
            await self._snapshots.check_there(effect.snapshot.id)
        await self._journal.write(plan(effects, self._journal.terms, self._journal.hard_state))
        if resets:
            self._in_use = resets[-1].snapshot.id

    async def settle(self) -> None:
        """Mark what was performed as durable; one flush, or nothing to do."""
        self._journal.check_usable()
        mark = self._journal.mark()
        if mark is not None:
            await self._marks_file.write(mark)
            self._journal.marked(mark)

    async def trim(self, first_index: LogIndex) -> None:
        """Remove whole segments before this index."""
        await self.settle()
        await self._journal.trim(first_index)

    async def save_snapshot(
        self, snapshot_id: SnapshotId, members: Members, state: Sequence[bytes]
    ) -> Snapshot:
        """Write what the state machine gave; durable at return. The one before is kept as well."""
        self._journal.check_usable()
        content = SnapshotContent(id=snapshot_id, members=members, state=tuple(state))
        snapshot = await self._snapshots.save(content)
        before = self._in_use or snapshot_id
        self._in_use = max(before, snapshot_id)
        await self._snapshots.remove_older(snapshot_id, before)
        return snapshot

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        """Where to go on with a snapshot fetched from a leader."""
        return await self._snapshots.begin_fetched(snapshot_id, size_bytes)

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """The next piece."""
        await self._snapshots.write_fetched(snapshot_id, position, data)

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """Check all checksums and flush; STORAGE_CORRUPT (and begun anew) if one is wrong."""
        return await self._snapshots.finish_fetched(snapshot_id)

    async def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        """A piece of the file, and the whole file's size; None: it is gone, or was found damaged
        before its first piece was given away.
        """
        return await self._snapshots.read(snapshot_id, position, length_bytes)

    async def load_state(self, snapshot: Snapshot) -> Sequence[bytes]:
        """What the state machine gave to `save_snapshot`; STORAGE_CORRUPT if damaged."""
        _, content = await self._snapshots.load(snapshot.id)
        return content.state

    async def close(self) -> None:
        """Settle, if that is still possible; the disk is shut down by its owner."""
        if not self._journal.failure:
            await self.settle()


async def open_storage(
    disk: Disk,
    *,
    node_id: int | None = None,
    cluster_id: str | None = None,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
    boot_id: str = "",
) -> QuorumStorageFiles:
    """Open a formatted directory and recover what it holds.

    With the machine's `boot_id`, damage to what was written last is told from a torn tail as long
    as only the process died; without one, only after a `settle`.
    """
    identity = await read_identity(disk, node_id=node_id, cluster_id=cluster_id)
    opened = await recover(disk, identity, segment_bytes_max, boot_id)
    return QuorumStorageFiles(identity, opened)

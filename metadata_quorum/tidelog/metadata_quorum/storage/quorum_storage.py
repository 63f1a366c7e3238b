"""The storage of one member, over one directory of its own: what the runner persists through."""

from collections.abc import Sequence

from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import (
    HardState,
    MemberId,
    Members,
    Recovered,
    Snapshot,
    SnapshotId,
)
from tidelog.metadata_quorum.storage.identity import QuorumIdentity, read_identity
from tidelog.ports import Disk
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex


class QuorumStorageFiles:
    """Made by `open_storage`."""

    def __init__(self, disk: Disk, identity: QuorumIdentity, recovered: Recovered) -> None:
        self._disk = disk
        self._identity = identity
        self._recovered = recovered

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
        raise self._missing(f"persist {len(effects)} effects")

    async def settle(self) -> None:
        """Make it certain that what was performed is told from a torn tail after a crash of the
        machine. Called when nothing has been persisted for a while; costs one flush, or nothing.
        """

    async def trim(self, first_index: LogIndex) -> None:
        """Remove whole segments before this index."""
        raise self._missing(f"trim to {first_index}")

    async def save_snapshot(
        self, snapshot_id: SnapshotId, members: Members, state: Sequence[bytes]
    ) -> Snapshot:
        """Write what the state machine gave; durable at return."""
        raise self._missing("save a snapshot")

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        """Where to go on with a snapshot fetched from a leader."""
        raise self._missing("fetch a snapshot")

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """The next piece."""
        raise self._missing("fetch a snapshot")

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """Check all checksums and flush."""
        raise self._missing("fetch a snapshot")

    async def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        """A piece of the file, and the whole file's size; None: it is gone."""
        raise self._missing("read a snapshot")

    async def load_state(self, snapshot: Snapshot) -> Sequence[bytes]:
        """What the state machine gave to `save_snapshot`; STORAGE_CORRUPT if damaged."""
        raise self._missing("load a snapshot")

    async def close(self) -> None:
        """Settle; the disk is shut down by its owner."""

    def _missing(self, tried: str) -> TidelogError:
        return TidelogError(ErrorCode.NOT_IMPLEMENTED, tried=tried, happened="not in this release")


async def open_storage(
    disk: Disk, *, node_id: int | None = None, cluster_id: str | None = None
) -> QuorumStorageFiles:
    """Open a formatted directory and recover what it holds."""
    identity = await read_identity(disk, node_id=node_id, cluster_id=cluster_id)
    recovered = Recovered(
        hard_state=HardState(), snapshot=None, bootstrap=identity.bootstrap, entries=()
    )
    return QuorumStorageFiles(disk, identity, recovered)

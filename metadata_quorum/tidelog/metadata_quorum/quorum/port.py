"""The seams around the runner: storage below it, the state machine beside it, the quorum above.

`quorum.runner` joins a Raft core to these; each has one real implementation that runs on simulated
ports as well.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from tidelog.metadata_quorum.raft.core_port import Description
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import (
    Entry,
    Member,
    MemberId,
    Members,
    Recovered,
    Snapshot,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex, Term

NO_PROPOSER: Final = 0
"""Of a proposal that stands alone."""


class QuorumStorage(Protocol):
    """Entry log, hard state and snapshots of one member (`storage.quorum_storage`).

    Calls of `perform`, `trim` and the snapshot writers come one at a time, from the runner; reads
    at any time. A failed flush is final: every later call raises STORAGE_FAILED.
    """

    @property
    def member_id(self) -> MemberId: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def recovered(self) -> Recovered:
        """What was found when the directory was opened."""
        ...

    async def perform(self, effects: Sequence[Persist | ResetLog]) -> None:
        """All of them, in order, with as few flushes as order allows; durable at return."""
        ...

    async def settle(self) -> None:
        """To be called once nothing has been persisted for some 50 ms, and before an orderly end:
        what was performed last is then told from a torn tail. One flush, or nothing to do.
        """
        ...

    async def trim(self, first_index: LogIndex) -> None:
        """Remove whole segments before this index."""
        ...

    async def save_snapshot(
        self, snapshot_id: SnapshotId, members: Members, state: Sequence[bytes]
    ) -> Snapshot:
        """Write what the state machine gave; durable at return. Older ones go, save the last."""
        ...

    async def begin_fetched(self, snapshot_id: SnapshotId, size_bytes: int) -> int:
        """Where to go on with a snapshot fetched from a leader: 0, or what a broken fetch left."""
        ...

    async def write_fetched(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """The next piece."""
        ...

    async def finish_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """Check all checksums and flush; STORAGE_CORRUPT (and begun anew) if one is wrong."""
        ...

    async def read_snapshot(
        self, snapshot_id: SnapshotId, position: int, length_bytes: int
    ) -> tuple[bytes, int] | None:
        """A piece of the file, and the whole file's size; None: it is gone, or was found damaged
        before its first piece was given away.
        """
        ...

    async def load_state(self, snapshot: Snapshot) -> Sequence[bytes]:
        """What the state machine gave to `save_snapshot`; STORAGE_CORRUPT if damaged."""
        ...


class StateMachine(Protocol):
    """What the log is for; the runner is its only writer."""

    def apply(self, entries: Sequence[Entry]) -> None:
        """Committed entries of every kind, each once, in order. Never fails on a sound log."""
        ...

    def capture(self) -> Callable[[], Sequence[bytes]]:
        """A function that encodes the state as it is now; it may be called later."""
        ...

    def restore(self, snapshot: Snapshot, state: Sequence[bytes]) -> None:
        """Replace everything."""
        ...


class Quorum(Protocol):
    """What the controller, the metadata stream and the operators' calls ask of the runner.

    Errors: NOT_CONTROLLER changed nothing (its hint names the leader, if known); INDETERMINATE and
    DEADLINE_EXCEEDED may still take effect; UNAVAILABLE while stopping; STORAGE_FAILED for good.
    """

    @property
    def member_id(self) -> MemberId: ...

    def describe(self) -> Description: ...

    async def propose(self, data: bytes, *, term: Term, proposer: int = NO_PROPOSER) -> LogIndex:
        """Returns after the entry was committed and applied here; `term` is the leader's own.

        Of one proposer's entries none is taken after one that was refused, so that each may build
        upon those before it. Whoever goes on after a refusal is a new proposer, of a higher number.
        """
        ...

    async def read_index(self, *, timeout_ms: int) -> LogIndex:
        """Linearizable: returns after this node has applied what was committed before the call."""
        ...

    async def wait_applied(self, index: LogIndex) -> None: ...

    async def wait_change(self, seen: int) -> int:
        """Returns a number above `seen` once role, term, leader, members or commit changed."""
        ...

    async def add_learner(self, member: Member, *, timeout_ms: int) -> Members: ...

    async def promote(self, member_id: MemberId, *, timeout_ms: int) -> Members: ...

    async def remove_member(self, member_id: MemberId, *, timeout_ms: int) -> Members: ...

    async def transfer(self, to: MemberId | None, *, timeout_ms: int) -> None: ...

    def committed_entries(self, first_index: LogIndex, bytes_max: int) -> Sequence[Entry] | None:
        """Entries up to the commit index, at least one if there is one; None: in a snapshot."""
        ...

    def newest_snapshot(self) -> Snapshot | None: ...

    def snapshot_pieces(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """The file's bytes in pieces of at most 1 MiB; ends early with UNAVAILABLE if gone."""
        ...

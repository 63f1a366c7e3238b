"""Snapshots of this node's own state, taken when enough was applied since the last one.

Owns when and of what. It must never save one that is older than what a leader's snapshot has
already replaced. Encoding a big image is spread out: others run between its pieces.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidelog.metadata_quorum.quorum.applying import Applying
from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import QuorumStorage, StateMachine
from tidelog.metadata_quorum.quorum.storage_task import StorageTask
from tidelog.metadata_quorum.raft.types import Members, Snapshot, SnapshotId
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import LogIndex

NS_PER_MS = 1_000_000


class SnapshotTaker:
    """`consider` from the runner's task."""

    def __init__(
        self,
        storage: QuorumStorage,
        state_machine: StateMachine,
        writer: StorageTask,
        applying: Applying,
        clock: Clock,
        limits: QuorumLimits,
        *,
        complete: Callable[[Snapshot], None],
    ) -> None:
        self._storage = storage
        self._state_machine = state_machine
        self._writer = writer
        self._applying = applying
        self._clock = clock
        self._limits = limits
        self._complete = complete
        self._is_busy = False
        self._not_before_ms = 0
        self.last_error: TidelogError | None = None

    def consider(self, scope: TaskScope) -> None:
        """Begin a snapshot of what is applied now, if one is due."""
        if self._is_busy or not self._applying.is_snapshot_due:
            return
        if self._clock.monotonic_ns() // NS_PER_MS < self._not_before_ms:
            return
        snapshot_id = SnapshotId(
            end_index=LogIndex(self._applying.applied_index + 1), term=self._applying.applied_term
        )
        self._is_busy = True
        encode = self._state_machine.capture()
        work = self._take(snapshot_id, self._applying.members, encode, self._writer.resets)
        self._applying.start_count()
        scope.start(work, name=f"snapshot {snapshot_id.end_index}")

    async def _take(
        self,
        snapshot_id: SnapshotId,
        members: Members,
        encode: Callable[[], Sequence[bytes]],
        resets: int,
    ) -> None:
        pieces: list[bytes] = []
        for piece in encode():
            pieces.append(piece)
            await asyncio.sleep(0)

        async def save() -> Snapshot | None:
            if self._writer.resets != resets:
                return None
            return await self._storage.save_snapshot(snapshot_id, members, pieces)

        try:
            snapshot = await self._writer.submit(save)
        except TidelogError as error:
            self.last_error = error
            self._not_before_ms = (
                self._clock.monotonic_ns() // NS_PER_MS + self._limits.snapshot_retry_ms
            )
            self._applying.owe_snapshot()
        else:
            if snapshot is not None:
                self._complete(snapshot)
        finally:
            self._is_busy = False

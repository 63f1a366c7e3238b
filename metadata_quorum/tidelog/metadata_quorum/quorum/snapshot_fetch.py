"""A snapshot fetched from another member, piece by piece: one at a time, a new one replaces it.

Owns the fetch under way. It must never tell the core of a snapshot that does not lie whole, checked
and flushed in storage. A fetch that broke off goes on where its pieces end.
"""

import asyncio
from collections.abc import Callable

from tidelog.metadata_quorum.quorum.limits import QuorumLimits
from tidelog.metadata_quorum.quorum.port import QuorumStorage
from tidelog.metadata_quorum.quorum.storage_task import StorageTask
from tidelog.metadata_quorum.quorum.transport import QuorumTransport
from tidelog.metadata_quorum.quorum.wire.joining import Piece, PieceRequest
from tidelog.metadata_quorum.raft.effects import FetchSnapshot
from tidelog.metadata_quorum.raft.inputs import (
    SnapshotFetched,
    SnapshotFetchFailed,
    SnapshotProgress,
)
from tidelog.metadata_quorum.raft.types import SnapshotId
from tidelog.ports import Clock, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError

Completion = SnapshotFetched | SnapshotFetchFailed | SnapshotProgress


class SnapshotFetcher:
    """`begin` from the runner's task."""

    def __init__(
        self,
        storage: QuorumStorage,
        writer: StorageTask,
        transport: QuorumTransport,
        clock: Clock,
        limits: QuorumLimits,
        *,
        complete: Callable[[Completion], None],
    ) -> None:
        self._storage = storage
        self._writer = writer
        self._transport = transport
        self._clock = clock
        self._limits = limits
        self._complete = complete
        self._task: asyncio.Task[None] | None = None
        self.last_error: TidelogError | None = None

    def begin(self, scope: TaskScope, wanted: FetchSnapshot) -> None:
        """Fetch this one from now on."""
        if self._task is not None:
            self._task.cancel()
        self._task = scope.start(self._run(wanted), name=f"fetch of snapshot {wanted.id.end_index}")

    async def _run(self, wanted: FetchSnapshot) -> None:
        try:
            position = await self._writer.submit(
                lambda: self._storage.begin_fetched(wanted.id, wanted.size_bytes)
            )
            while position < wanted.size_bytes:
                position = await self._store(wanted, position)
            snapshot = await self._writer.submit(lambda: self._storage.finish_fetched(wanted.id))
        except TidelogError as error:
            self.last_error = error
            await self._clock.sleep(self._limits.reconnect_max_ms)
            self._complete(SnapshotFetchFailed(id=wanted.id))
        else:
            self._complete(SnapshotFetched(snapshot=snapshot))

    async def _store(self, wanted: FetchSnapshot, position: int) -> int:
        piece = await self._fetch_piece(wanted, position)
        if piece.is_gone or piece.total_bytes != wanted.size_bytes:
            raise _gone(wanted.id, piece)
        await self._writer.submit(
            lambda: self._storage.write_fetched(wanted.id, position, piece.data)
        )
        position += len(piece.data)
        self._complete(SnapshotProgress(id=wanted.id, position=position))
        return position

    async def _fetch_piece(self, wanted: FetchSnapshot, position: int) -> Piece:
        request = PieceRequest(
            id=wanted.id, position=position, bytes_max=self._limits.snapshot_piece_bytes
        )
        for attempt in range(1, self._limits.snapshot_piece_attempts_max + 1):
            try:
                return await self._transport.fetch_piece(wanted.source, request)
            except TidelogError as error:
                if attempt == self._limits.snapshot_piece_attempts_max:
                    raise
                self.last_error = error
                await self._clock.sleep(self._limits.reconnect_first_ms * attempt)
        raise AssertionError("the last attempt returns or raises")


def _gone(snapshot_id: SnapshotId, piece: Piece) -> TidelogError:
    happened = "its holder has dropped it for a newer one, or found it damaged"
    if not piece.is_gone:
        happened = f"its holder says that it has {piece.total_bytes} bytes, not what was offered"
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried=f"fetch the snapshot up to {snapshot_id.end_index}",
        happened=happened,
    )

"""The voter's end of the metadata stream: brings committed entries to nodes without a vote.

Owns who observes this voter and how far each is. It must never send an entry that is not committed,
nor one twice, nor leave one out; what the log no longer holds comes as a snapshot. No stop of a
record's walk passes here; every stop reads what the stream brought.

Theory of operation. A stream begins with the place that the observer has applied. Once this voter
has applied that place as well, the terms there must agree: committed logs are prefixes of each
other, so a difference means another history. While it has not, it reads the quorum's index: what
the observer applied was committed before it asked, so a place beyond that index is of another
history too. Then one loop sends whatever is committed and not yet sent, as long as the observer
grants bytes; with nothing to send it waits for the quorum to change, at most a second, and tells
that it lives and whom it takes for the leader.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.types import Entry, Members, NodeId, Snapshot
from tidelog.metadata_quorum.stream import wire as stream_messages
from tidelog.metadata_quorum.stream.messages import (
    CommittedEntries,
    Heartbeat,
    ObserveBegin,
    ObserveProgress,
    SnapshotPiece,
    VoterMessage,
)
from tidelog.ports import RequestContext, Stream, TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term

HEARTBEAT_MS: Final = 1_000
BEGIN_MS: Final = 3_000
"""Until `begin` must have come."""
READ_INDEX_MS: Final = 500
"""The observer hears nothing meanwhile."""
ENTRIES_BYTES_MAX: Final = 512 * 1024
OBSERVERS_MAX: Final = 1_000
METHOD: Final = "/tidelog.v1.MetadataStreamService/ObserveMetadata"


class ObserverStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An observer as this voter knows it."""

    node_id: NodeId
    applied_index: LogIndex


class MetadataStreamServer:
    """Serves every observer of one voter."""

    def __init__(
        self, quorum: Quorum, *, cluster_id: str, observers_max: int = OBSERVERS_MAX
    ) -> None:
        self._quorum = quorum
        self._observers_max = observers_max
        self._cluster_id = cluster_id
        self._sessions: dict[int, _Session] = {}
        self._open = 0
        """Streams, also those that have not begun."""
        self._opened = 0

    def observers(self) -> tuple[ObserverStatus, ...]:
        """All that have a stream open here, in the order of their ids."""
        known: dict[NodeId, LogIndex] = {}
        for session in self._sessions.values():
            node_id = session.begin.node_id
            known[node_id] = max(known.get(node_id, LogIndex(0)), session.applied_index)
        return tuple(
            ObserverStatus(node_id=node_id, applied_index=known[node_id])
            for node_id in sorted(known)
        )

    async def observe(self, context: RequestContext, stream: Stream) -> None:
        """`ObserveMetadata`: until the observer ends it, or there is something it cannot have."""
        del context
        if self._open >= self._observers_max:
            raise _refused(
                ErrorCode.RESOURCE_EXHAUSTED, f"{self._observers_max} observers are connected here"
            )
        self._open += 1
        try:
            begin = await self._receive_begin(stream)
            if begin is not None:
                await self._serve(stream, begin)
        finally:
            self._open -= 1

    async def _serve(self, stream: Stream, begin: ObserveBegin) -> None:
        self._opened += 1
        number = self._opened
        session = self._sessions[number] = _Session(self._quorum, stream, begin)
        try:
            await session.serve()
        finally:
            del self._sessions[number]

    async def _receive_begin(self, stream: Stream) -> ObserveBegin | None:
        try:
            async with asyncio.timeout(BEGIN_MS / 1000):
                data = await stream.receive()
        except TimeoutError:
            raise _refused(
                ErrorCode.DEADLINE_EXCEEDED, f"no `begin` came within {BEGIN_MS} ms"
            ) from None
        if data is None:
            return None
        begin = stream_messages.decode_observer_message(data)
        if not isinstance(begin, ObserveBegin):
            raise _refused(ErrorCode.INVALID_ARGUMENT, "the stream does not start with `begin`")
        if begin.cluster_id != self._cluster_id:
            raise _refused(
                ErrorCode.WRONG_CLUSTER,
                f"node {begin.node_id} belongs to cluster {begin.cluster_id}, "
                f"this voter to {self._cluster_id}",
                "Correct quorum.bootstrap_servers of the node.",
            )
        if begin.next_index == 1 and begin.last_applied_term != 0:
            raise _refused(
                ErrorCode.INVALID_ARGUMENT,
                f"an observer without entries names the term {begin.last_applied_term} of its last",
            )
        return begin


class _Session:
    """One observer's stream; the sending loop owns it, the receiving one adds credit."""

    def __init__(self, quorum: Quorum, stream: Stream, begin: ObserveBegin) -> None:
        self.begin = begin
        self.applied_index = LogIndex(begin.next_index - 1)
        self._quorum = quorum
        self._stream = stream
        self._next_index = begin.next_index
        self._credit_bytes = begin.credit_bytes
        self._is_history_checked = begin.next_index == 1
        self._told: tuple[NodeId | None, Term] | None = None
        self._told_members: Members | None = None
        self._has_ended = False
        self._news = asyncio.Event()

    async def serve(self) -> None:
        async with TaskScope() as scope:
            scope.start(self._watch_quorum(), name="observer's quorum")
            scope.start(self._receive_all(), name="observer's progress")
            await self._send_all()
            scope.cancel()

    async def _watch_quorum(self) -> None:
        """Wake the sender at each change."""
        seen = -1
        while True:
            seen = await self._quorum.wait_change(seen)
            self._news.set()

    async def _receive_all(self) -> None:
        """Take in progress and credit until the observer ends the stream."""
        while (data := await self._stream.receive()) is not None:
            message = stream_messages.decode_observer_message(data)
            if not isinstance(message, ObserveProgress):
                raise _refused(ErrorCode.INVALID_ARGUMENT, "`begin` came twice")
            if message.applied_index >= self._next_index:
                raise _refused(
                    ErrorCode.INVALID_ARGUMENT,
                    f"entry {message.applied_index} is said to be applied, and was not sent",
                )
            self.applied_index = max(self.applied_index, message.applied_index)
            self._credit_bytes += message.credit_bytes
            self._news.set()
        self._has_ended = True
        self._news.set()

    async def _send_all(self) -> None:
        while not self._has_ended:
            # Cleared before looking: what comes while something is sent is looked at once more.
            self._news.clear()
            await self._tell_leader()
            if await self._can_send() and await self._send_next():
                continue
            try:
                async with asyncio.timeout(HEARTBEAT_MS / 1000):
                    await self._news.wait()
            except TimeoutError:
                self._told = None

    async def _can_send(self) -> bool:
        if not self._is_history_checked:
            self._is_history_checked = self._is_same_history() or (
                await self._is_place_known() and self._is_same_history()
            )
        return self._is_history_checked and self._credit_bytes > 0

    def _is_same_history(self) -> bool:
        """Compare terms at the observer's place; False: this voter has not applied so far."""
        index = LogIndex(self._next_index - 1)
        snapshot = self._quorum.newest_snapshot()
        if snapshot is not None and snapshot.last_index == index:
            term = snapshot.id.term
        else:
            entries = self._quorum.committed_entries(index, 1)
            if entries is None:
                # Inside a snapshot, which does not tell the terms of what it holds.
                return True
            if not entries:
                return False
            term = entries[0].term
        if term != self.begin.last_applied_term:
            raise self._other_history(f"here it is of term {term}")
        return True

    async def _is_place_known(self) -> bool:
        """Whether this voter has applied as far as the quorum has committed; it may not know."""
        try:
            index = await self._quorum.read_index(timeout_ms=READ_INDEX_MS)
        except TidelogError:
            # No leader, or this voter is far behind: the observer hears that the voter lives.
            self._told = None
            return False
        if index < self._next_index - 1:
            raise self._other_history(f"here the last one committed is {index}")
        return True

    def _other_history(self, happened: str) -> TidelogError:
        return _refused(
            ErrorCode.WRONG_CLUSTER,
            f"node {self.begin.node_id} applied entry {self._next_index - 1} of term "
            f"{self.begin.last_applied_term}, {happened}: another history",
            "Start the node again: it then takes over the history of this quorum.",
        )

    async def _send_next(self) -> bool:
        """Send a snapshot or some entries; False: there is nothing to send."""
        entries = self._quorum.committed_entries(
            self._next_index, min(ENTRIES_BYTES_MAX, self._credit_bytes)
        )
        if entries is None:
            snapshot = self._quorum.newest_snapshot()
            assert snapshot is not None, "entries that are gone are in a snapshot"
            await self._send_snapshot(snapshot)
            return True
        if not entries:
            return False
        await self._send_entries(entries)
        return True

    async def _send_entries(self, entries: Sequence[Entry]) -> None:
        assert entries[0].index == self._next_index, (
            f"entry {entries[0].index} follows on {self._next_index - 1}"
        )
        self._next_index = LogIndex(entries[-1].index + 1)
        self._credit_bytes -= sum(len(entry.data) for entry in entries) or 1
        commit_index = self._quorum.describe().commit_index
        assert entries[-1].index <= commit_index, "only what is committed is sent"
        await self._send(CommittedEntries(entries=tuple(entries), commit_index=commit_index))

    async def _send_snapshot(self, snapshot: Snapshot) -> None:
        """All pieces, each when there is credit; a snapshot that is gone ends the stream."""
        assert snapshot.id.end_index > self._next_index, "a snapshot brings the observer forward"
        position = 0
        try:
            async for data in self._quorum.snapshot_pieces(snapshot):
                await self._wait_credit()
                if self._has_ended:
                    return
                self._credit_bytes -= len(data)
                piece = SnapshotPiece(
                    id=snapshot.id, position=position, data=data, total_bytes=snapshot.size_bytes
                )
                position += len(data)
                await self._send(piece)
        except TidelogError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
            await self._send(self._heartbeat(error))
            self._has_ended = True
            return
        self._next_index = snapshot.id.end_index
        self._is_history_checked = True

    async def _wait_credit(self) -> None:
        """The observer hears nothing meanwhile: it owes the credit."""
        while self._credit_bytes <= 0 and not self._has_ended:
            self._news.clear()
            await self._news.wait()

    async def _tell_leader(self) -> None:
        """At the start, at each change, and each second."""
        description = self._quorum.describe()
        leader = None if description.leader is None else description.leader.node_id
        now = (leader, description.term)
        if self._told != now or self._told_members != description.members:
            self._told = now
            await self._send(self._heartbeat())

    def _heartbeat(self, error: TidelogError | None = None) -> Heartbeat:
        description = self._quorum.describe()
        is_news = self._told_members != description.members
        self._told_members = description.members
        return Heartbeat(
            commit_index=description.commit_index,
            leader=None if description.leader is None else description.leader.node_id,
            term=description.term,
            error=error,
            members=description.members if is_news else None,
        )

    async def _send(self, message: VoterMessage) -> None:
        await self._stream.send(stream_messages.encode_voter_message(message))


def _refused(code: ErrorCode, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(code, tried="observe the metadata", happened=happened, hint=hint)

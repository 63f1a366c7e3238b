"""One term of the active controller: decides writes in order, proposes them without waiting.

Owns `image_ahead`: the applied image with everything that was decided since and is not committed
yet. It must never answer a write before what it was decided upon is committed, and never go on
after a proposal failed: what was decided since stands on something that may not exist.

Theory of operation. Writes come from one inbox. As many as are there are decided one after the
other, each against the image after the one before; the records of small ones share an entry. An
entry is handed to the quorum, in order, by a task of its own that waits for the commit while the
next ones are decided. No more is with the quorum at a time than it takes, so that the entries of a
large write follow each other as those before them are committed. A write that changes nothing (also
one that is refused) waits for all that was decided before it, and for a round that shows that this
node still leads: its answer may stand on an entry that is not committed, or on an image that
another leader has moved on from.

    inbox ─→ decide ─→ image_ahead ─→ entries ─→ quorum ─→ committed, applied ─→ answer
                │                                                                  ↑
                └── nothing to write ──→ predecessor settled ──→ read index ───────┘
"""

import asyncio
from collections import deque
from typing import Protocol

import msgspec

from tidelog.metadata import invariants
from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata_quorum.active.limits import ActiveLimits
from tidelog.metadata_quorum.active.writes import Batch, Pending
from tidelog.metadata_quorum.controller.groups import encode_group
from tidelog.metadata_quorum.quorum.port import Quorum
from tidelog.metadata_quorum.raft.effects import Role
from tidelog.ports import TaskScope
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex, Term


class AppliedState(Protocol):
    """What the controller needs of this node's state machine."""

    def image(self) -> Image:
        """Everything that is applied here and visible."""
        ...

    def has_open_group(self) -> bool:
        """Whether the entries of a group were applied, but not its end."""
        ...


class Inbox:
    """Writes that wait for their turn; they survive the beginning of a term, not its end."""

    def __init__(self) -> None:
        self.waiting: deque[Pending] = deque()
        self._holds = 0
        self._news = asyncio.Event()

    def put(self, write: Pending) -> None:
        """At the end."""
        self.waiting.append(write)
        self._news.set()

    def hold(self) -> None:
        """Nothing is taken out until as many releases."""
        self._holds += 1

    def release(self) -> None:
        """Take back one hold."""
        assert self._holds > 0, "every release follows a hold"
        self._holds -= 1
        self._news.set()

    def wake(self) -> None:
        """Let whoever waits look around."""
        self._news.set()

    @property
    def is_ready(self) -> bool:
        """Whether a write may be taken out."""
        return bool(self.waiting) and not self._holds

    async def wait_released(self) -> None:
        """Until nothing is held."""
        while self._holds:
            await self.wait_news()

    async def wait_news(self) -> None:
        """Until something was put in, released or woken since the last wait."""
        await self._news.wait()
        self._news.clear()


class ActiveTerm:
    """Made once everything before it is applied; `run` returns only if it must begin anew."""

    def __init__(
        self,
        *,
        quorum: Quorum,
        state: AppliedState,
        term: Term,
        inbox: Inbox,
        scope: TaskScope,
        limits: ActiveLimits,
        proposer: int,
    ) -> None:
        self.term = term
        self._proposer = proposer
        """To the quorum: a number above every earlier one's on this node."""
        self.image_ahead = state.image()
        self._quorum = quorum
        self._state = state
        self._inbox = inbox
        self._scope = scope
        self._limits = limits
        self._in_flight: deque[Batch] = deque()
        self._in_flight_bytes = 0
        """Of entries that are with the quorum and have no outcome."""
        self._is_deciding = False
        """`image_ahead` holds what is not in flight yet."""
        self.is_broken = False
        """A proposal failed: `image_ahead` stands on what may not exist."""
        assert not state.has_open_group(), "an open group is aborted before a term begins"

    async def run(self) -> None:
        """The owning task of the image ahead; cancelled when the leadership is lost."""
        while not self.is_broken:
            if self._inbox.is_ready and self._has_room():
                batch = await self._take()
                if self._has_ground():
                    await self._perform(batch)
                else:
                    batch.fail_all(_lost_ground())
            else:
                await self._inbox.wait_news()

    async def wait_settled(self) -> None:
        """Until everything that was proposed has an outcome."""
        while self._in_flight:
            await self._in_flight[0].settled.wait()

    def abandon(self, happened: str) -> None:
        """The node ends: nobody will hear what becomes of what is in flight."""
        error = TidelogError(ErrorCode.INDETERMINATE, tried="write metadata", happened=happened)
        for batch in list(self._in_flight):
            batch.fail_all(error)

    def _has_room(self) -> bool:
        limits = self._limits
        return (
            len(self._in_flight) < limits.in_flight_entries_max
            and self._in_flight_bytes < limits.in_flight_bytes_max
        )

    async def _take(self) -> Batch:
        """Decide what waits, as much as one entry should hold."""
        limits = self._limits
        writes: list[Pending] = []
        records: list[MetadataRecord] = []
        self._is_deciding = True
        try:
            while self._inbox.waiting and len(writes) < limits.combined_writes_max:
                write = self._inbox.waiting.popleft()
                writes.append(write)
                records += await self._decide(write)
                if len(records) >= limits.combined_records_max:
                    break
            await self._inbox.wait_released()
        except asyncio.CancelledError:
            for write in writes:
                write.fail(ErrorCode.NOT_CONTROLLER, "the leadership was lost meanwhile")
            raise
        finally:
            self._is_deciding = False
        entries: tuple[bytes, ...] = ()
        if records:
            name = writes[0].tried if len(writes) == 1 else f"{len(writes)} writes"
            entries = encode_group(records, name=name, bytes_max=limits.entry_bytes_max)
        return Batch(tuple(writes), entries=entries)

    async def _decide(self, write: Pending) -> tuple[MetadataRecord, ...]:
        """A large write is applied in slices: a loop that is held up for an election timeout would
        cost the leadership, and the next controller would decide the same.
        """
        image = self.image_ahead
        records = write.decide(image)
        slice_length = self._limits.applied_records_max
        for start in range(0, len(records), slice_length):
            if start:
                await asyncio.sleep(0)
            after = apply_entry(image, records[start : start + slice_length])
            invariants.check_step(image, after)
            image = after
        self.image_ahead = image
        return records

    async def _perform(self, batch: Batch) -> None:
        predecessor = self._in_flight[-1] if self._in_flight else None
        self._in_flight.append(batch)
        if not batch.entries:
            self._scope.start(self._confirm(batch, predecessor), name="confirm leadership")
            return
        started = 0
        try:
            for data in batch.entries:
                await self._wait_room(len(data))
                if self.is_broken:
                    self._void(batch, started)
                    return
                # The loop may start tasks in any order: the next entry waits until this one is with
                # the quorum, which takes it before its call waits for the first time.
                entered = asyncio.Event()
                self._in_flight_bytes += len(data)
                self._scope.start(self._carry(batch, data, entered), name="carry an entry")
                started += 1
                await entered.wait()
        except asyncio.CancelledError:
            # The leadership is lost: nobody will propose the rest.
            self._void(batch, started)
            raise

    async def _wait_room(self, size_bytes: int) -> None:
        """Until the quorum takes another entry; those that are with it have an outcome some time.

        One write can be larger than all that the quorum takes at a time: refused, it would be
        decided again and be as large again, for ever.
        """
        bytes_max = self._limits.in_flight_bytes_max
        while self._in_flight_bytes and self._in_flight_bytes + size_bytes > bytes_max:
            await self._inbox.wait_news()

    def _void(self, batch: Batch, place: int) -> None:
        """Its entries from here on are not proposed."""
        if place < len(batch.entries):
            batch.void(len(batch.entries) - place)
            self._on_outcome(batch)

    async def _carry(self, batch: Batch, data: bytes, entered: asyncio.Event) -> None:
        entered.set()
        try:
            index = await self._quorum.propose(data, term=self.term, proposer=self._proposer)
        except TidelogError as error:
            self._break()
            batch.on_failed(error)
        else:
            batch.on_committed(index)
        self._in_flight_bytes -= len(data)
        self._inbox.wake()
        self._on_outcome(batch)

    async def _confirm(self, batch: Batch, predecessor: Batch | None) -> None:
        if predecessor is not None:
            await predecessor.settled.wait()
        try:
            if predecessor is not None and predecessor.failure is not None:
                raise predecessor.failure
            index = await self._quorum.read_index(timeout_ms=self._limits.confirmation_timeout_ms)
            self._validate_leads()
        except TidelogError as error:
            batch.fail_all(error)
        else:
            batch.confirm(index)
        self._on_outcome(batch)

    def _validate_leads(self) -> None:
        if not self._leads():
            raise TidelogError(
                ErrorCode.NOT_CONTROLLER,
                tried="confirm that this node leads",
                happened="it does not lead any more",
            )

    def _leads(self) -> bool:
        description = self._quorum.describe()
        return description.role is Role.LEADER and description.term == self.term

    def _has_ground(self) -> bool:
        """Whether what was decided stands on what is committed or may still be."""
        return not self.is_broken

    def _break(self) -> None:
        """What was decided upon the failed entry must not be built upon any further."""
        self.is_broken = True
        self._inbox.wake()

    def _on_outcome(self, batch: Batch) -> None:
        if not batch.settled.is_set():
            return
        self._in_flight.remove(batch)
        self._inbox.wake()
        is_settled = not self._in_flight and not self._is_deciding
        if is_settled and not self.is_broken and self._leads():
            self._adopt_applied()

    def _adopt_applied(self) -> None:
        """Nothing is in flight: both images say the same, and from here on they share nodes."""
        applied = self._state.image()
        ahead = msgspec.structs.replace(self.image_ahead, version=applied.version)
        assert ahead == applied, "what was decided ahead differs from what was applied"
        self.image_ahead = applied

    @property
    def in_flight_count(self) -> int:
        """Batches without an outcome."""
        return len(self._in_flight)

    @property
    def last_index(self) -> LogIndex:
        """The version of the newest applied image."""
        return LogIndex(self._state.image().version)


def _lost_ground() -> TidelogError:
    return TidelogError(
        ErrorCode.UNAVAILABLE,
        tried="write metadata",
        happened="a write that it was decided upon was refused meanwhile",
    )

"""One partition as its directory's core knows it: log, role, and what is under way for it. Pure.

Owns the phases that a partition goes through between writes, flushes, trims and cuts. Only its own
methods change it: the subject files ask, and each method says what it takes for granted.

    what is written and not flushed:   CLEAN ── written ──▶ SOON ── round begins ──▶ CLEAN
                                         └─ written, nobody waits ──▶ LATER ── time ──▶ SOON
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from tidelog.broker.directory.core.verifying import Verifying
from tidelog.broker.log.state.log import UNKNOWN_EPOCH, PartitionLog
from tidelog.metadata.settings.of_topics import TopicSettings
from tidelog.wire.ids import BrokerId, LeaderEpoch, Offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidelog.broker.directory.core.messages import AppendBatch
    from tidelog.broker.directory.core.positions import FollowerAt
    from tidelog.broker.directory.core.promises import Cut
    from tidelog.broker.directory.core.rounds import Awaiting, SegmentPlan


class FlushDue(enum.Enum):
    """When what was written to the active segment is flushed."""

    CLEAN = enum.auto()
    """Nothing was written since the last round began."""
    SOON = enum.auto()
    """With the next round."""
    LATER = enum.auto()
    """Once it has waited long enough: nobody waits for it."""


class Leading:
    """What a replica that leads others keeps of them, and who waits for a commit."""

    __slots__ = ("awaiting", "in_sync_count", "others")

    def __init__(self) -> None:
        self.others: dict[BrokerId, FollowerAt | None] = {}
        """Where those stand that a commit waits for; None: not told in this epoch."""
        self.in_sync_count = 0
        self.awaiting: deque[Awaiting] = deque()
        """In the order of their offsets."""

    def forget_positions(self) -> None:
        """An epoch begins: what a follower told in another one says nothing."""
        self.others = {}

    def wait_for(self, others: tuple[BrokerId, ...], *, in_sync_count: int) -> None:
        """A commit waits for these from now on; so many are in sync."""
        self.others = {each: self.others.get(each) for each in others}
        self.in_sync_count = in_sync_count

    def note_position(self, at: FollowerAt) -> None:
        """One that a commit waits for has told where it stands."""
        assert at.broker_id in self.others, f"no commit waits for broker {at.broker_id}"
        self.others[at.broker_id] = at

    def await_commit(self, awaiting: Awaiting) -> None:
        """Answer it once its batch is committed. Nearly always it is the last one: a batch that was
        sent again waits among those behind which it was stored."""
        waiting = self.awaiting
        if not waiting or waiting[-1].end_offset <= awaiting.end_offset:
            waiting.append(awaiting)
        else:
            place = bisect_right(waiting, awaiting.end_offset, key=_end_offset_of)
            waiting.insert(place, awaiting)

    def take_committed(self, offset: Offset | int) -> Iterator[Awaiting]:
        """Those whose batches end at or below the offset: they wait no more."""
        awaiting = self.awaiting
        while awaiting and awaiting[0].end_offset <= offset:
            yield awaiting.popleft()

    def take_tokens(self, tokens: Collection[int]) -> list[Awaiting]:
        """Those with one of these tokens: they wait no more."""
        taken = [each for each in self.awaiting if each.token in tokens]
        if taken:
            self.awaiting = deque(each for each in self.awaiting if each.token not in tokens)
        return taken

    def take_all(self) -> list[Awaiting]:
        """All that wait: there is nothing more to wait for here."""
        taken = list(self.awaiting)
        self.awaiting.clear()
        return taken


class Following:
    """What a replica that follows knows of its leader."""

    __slots__ = ("is_refusing", "leader_watermark")

    def __init__(self) -> None:
        self.is_refusing = False
        """The last copy did not fit: what goes on behind it does not either."""
        self.leader_watermark = Offset(0)
        """What comes up to here is committed already."""

    def note_copy(self, *, is_misfit: bool) -> None:
        """A copy was looked at."""
        self.is_refusing = is_misfit

    def note_watermark(self, offset: Offset) -> bool:
        """The leader's high watermark; whether it has moved on."""
        if offset <= self.leader_watermark:
            return False
        self.leader_watermark = offset
        return True


Role = Leading | Following


class Partition:
    """A log with what its owner needs beside it."""

    __slots__ = (
        "cut",
        "flush_due",
        "held",
        "is_flushing",
        "is_removed",
        "is_roll_asked",
        "lazy_since_ms",
        "log",
        "plan",
        "role",
        "settings",
        "trim_epoch",
        "trim_offset",
        "trims",
        "verifying",
    )

    def __init__(self, log: PartitionLog, settings: TopicSettings, *, is_sole: bool = True) -> None:
        self.log = log
        self.settings = settings
        self.role: Role | None = None if is_sole else Following()
        """None: it is the partition's only replica."""
        if not is_sole:
            log.keep_uncommitted()
        self.held: deque[AppendBatch] = deque()
        """Until the active segment is flushed, and the next one can be made."""
        self.plan: SegmentPlan | None = None
        """Its part in the write being planned or in flight."""
        self.flush_due = FlushDue.CLEAN
        self.lazy_since_ms = 0
        self.is_flushing = False
        """Covered by the round in flight."""
        self.is_roll_asked = False
        self.trims = 0
        """Trims on their way to the disk."""
        self.trim_offset = Offset(0)
        """Where the highest of these lets the log begin."""
        self.trim_epoch = UNKNOWN_EPOCH
        """Whose leader decided that one."""
        self.cut: Cut | None = None
        self.is_removed = False
        self.verifying: Verifying | None = None
        """What is verified of transactions while this replica leads; None: nothing ever was."""

    # -- what it counts for ----------------------------------------------------------------------

    @property
    def is_flush_counted(self) -> bool:
        """Whether it counts for a commit with what it has flushed, not with what it has written.

        With flush=replicated a record is safe by being in several memories. Of a leader that is in
        sync alone there is one: whoever is on the way into the set could not lead after a crash.
        """
        role = self.role
        is_alone = isinstance(role, Leading) and role.in_sync_count <= 1
        return self.settings.is_flush_sync or is_alone

    @property
    def is_unflushed(self) -> bool:
        """Whether the active segment holds what is not known to be durable."""
        return self.is_flushing or self.flush_due is not FlushDue.CLEAN

    @property
    def is_lazy(self) -> bool:
        """Whether what was written waits for the flush interval."""
        return self.flush_due is FlushDue.LATER

    def configure(self, settings: TopicSettings) -> None:
        """Its topic has other settings from now on."""
        self.settings = settings

    # -- roles -----------------------------------------------------------------------------------

    def lead_others(self) -> Leading:
        """Lead from now on; one that leads already goes on as it is."""
        if isinstance(self.role, Leading):
            return self.role
        made = Leading()
        if self.role is None and self.plan is not None:
            # It led before as well, as the only one: what is being written is answered.
            self.plan.take_over(made)
        self.role = made
        self.log.keep_uncommitted()
        return made

    def follow(self) -> None:
        """Follow from now on, also where it did: what it knew of its leader is forgotten."""
        self.log.lead_nobody()
        self.log.keep_uncommitted()
        self.role = Following()

    def become_sole(self) -> None:
        """It has no other replica any more: its end is committed as it is flushed."""
        role = self.role
        assert role is not None, f"{self.log.key}: it is the only replica already"
        self.role = None
        if self.plan is not None and self.plan.role is role:
            self.plan.take_over(None)
        self.log.forget_uncommitted()
        self.log.lead_nobody()

    # -- batches that wait, and their write -------------------------------------------------------

    def hold(self, append: AppendBatch) -> None:
        """The batch waits for the flush of a segment that is full."""
        self.held.append(append)

    def take_held(self) -> list[AppendBatch]:
        """Those that wait for that flush, in their order."""
        taken = list(self.held)
        self.held.clear()
        return taken

    def join_write(self, plan: SegmentPlan) -> None:
        """The write being planned adds this to it."""
        assert self.plan is None, f"{self.log.key}: a write adds to one segment"
        self.plan = plan

    def leave_write(self) -> None:
        """The write in flight is over."""
        self.plan = None

    def begin_verifying(self, *, tickets_after: int) -> Verifying:
        """The first batch or marker of a transaction has come."""
        assert self.verifying is None, f"{self.log.key}: what was verified is forgotten"
        self.verifying = Verifying(tickets_after=tickets_after)
        return self.verifying

    def ask_roll(self) -> None:
        """The next segment is wanted."""
        self.is_roll_asked = True

    def drop_roll(self) -> None:
        """It has been made, or nobody needs it any more."""
        self.is_roll_asked = False

    # -- flushes ---------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """What was written goes with the next round."""
        self.flush_due = FlushDue.SOON

    def flush_later(self, now_ms: int) -> None:
        """What was written waits from now on."""
        assert self.flush_due is FlushDue.CLEAN, f"{self.log.key}: its flush is due already"
        self.flush_due, self.lazy_since_ms = FlushDue.LATER, now_ms

    def need_no_flush(self) -> None:
        """What was written is not to be flushed any more: it goes, or its disk has failed."""
        self.flush_due = FlushDue.CLEAN

    def begin_flush(self) -> None:
        """The round that begins covers all that was written."""
        assert self.flush_due is FlushDue.SOON, f"{self.log.key}: it is flushed unasked"
        self.flush_due, self.is_flushing = FlushDue.CLEAN, True

    def end_flush(self) -> None:
        """The round is over."""
        self.is_flushing = False

    # -- trims, cuts, the end --------------------------------------------------------------------

    def begin_trim(self, offset: Offset, leader_epoch: LeaderEpoch) -> tuple[Offset, LeaderEpoch]:
        """A trim is on its way to the disk; where its mark lets the log begin.

        The last mark of a kind counts: one behind a higher one would take that back.
        """
        start = (offset, leader_epoch)
        if self.trims:
            start = max(start, (self.trim_offset, self.trim_epoch))
        self.trims += 1
        self.trim_offset, self.trim_epoch = start
        return start

    def end_trim(self) -> None:
        """A trim is done, or refused."""
        assert self.trims > 0, f"{self.log.key}: a trim ends that never began"
        self.trims -= 1

    def begin_cut(self, cut: Cut) -> None:
        """Its end moves back: until that is done it takes no batch."""
        assert self.cut is None, f"{self.log.key}: its tail is cut off twice"
        self.cut = cut
        self.is_roll_asked = False
        self.log.begin_cut()

    def end_cut(self) -> None:
        """Its end is where it will stay, or stays where it was."""
        self.cut = None
        self.log.end_cut()

    def let_go(self) -> None:
        """It is served no more."""
        self.is_removed = True


def _end_offset_of(waiting: Awaiting) -> Offset:
    return waiting.end_offset

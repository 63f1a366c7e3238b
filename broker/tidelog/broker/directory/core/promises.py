"""What comes true once a mark is durable: a trim, a cut, a removal; how far each has come. Pure.

Owns the phases of a cut and of a removal. Each phase is left by one event only, so that a mark that
ends late, or twice, is found out and not obeyed.

    a cut of a tail:   WAITING ─▶ [MARKING ─▶ WAITING] ─▶ CUTTING ─▶ over
                                   └▶ GIVEN_UP ─▶ over
    a restart:         WAITING ─▶ [MARKING ─▶ WAITING] ─▶ [CUTTING ─▶ WAITING] ─▶ RESTARTING ─▶ over
    a removal:         WAITING ─▶ MARKING ─▶ MARKED ─▶ over
"""

import enum

import msgspec

from tidelog.broker.directory.core.messages import TrimHead
from tidelog.broker.directory.core.partition import Partition
from tidelog.broker.log.names import SegmentKey
from tidelog.wire.ids import LeaderEpoch, Offset, PartitionKey


class CutPhase(enum.Enum):
    """How far a cut has come."""

    WAITING = enum.auto()
    """For what is in flight, before its next step."""
    MARKING = enum.auto()
    """A lower FLUSHED mark is on its way to the disk."""
    GIVEN_UP = enum.auto()
    """So it is, and another leader epoch has begun meanwhile: nothing is cut."""
    CUTTING = enum.auto()
    """The owner changes the files."""
    RESTARTING = enum.auto()
    """The log is empty; the mark of its new start is on its way to the disk."""


class Restart(msgspec.Struct, frozen=True):
    """Where a log goes on once it is empty."""

    offset: Offset
    start_epoch: LeaderEpoch
    """By the word of which epoch's leader it begins there; -1: not known."""


class Cut:
    """A truncation of a log's tail: waits for what is in flight, is marked if need be, is done."""

    __slots__ = (
        "high_watermark",
        "offset",
        "partition",
        "phase",
        "promised_offset",
        "restart",
        "token",
    )

    def __init__(
        self, token: int, partition: Partition, offset: Offset, restart: Restart | None = None
    ) -> None:
        self.token = token
        self.partition = partition
        self.offset = offset
        self.restart = restart
        """None: the log ends at the offset, and stays where it is."""
        self.phase = CutPhase.WAITING
        self.promised_offset: Offset | None = None
        """Up to where the log was flushed before the last lower mark was asked for; None: none was,
        so marks may promise what will be cut off."""
        self.high_watermark = Offset(0)
        """As it was when the files began to change: what is left below it is committed still."""

    @property
    def is_under_way(self) -> bool:
        """Whether a mark or the owner is at it."""
        return self.phase is not CutPhase.WAITING

    @property
    def key(self) -> PartitionKey:
        """Which partition's."""
        return self.partition.log.key

    @property
    def is_undoing_commits(self) -> bool:
        """Whether a COMMITTED mark may say more than what will be left."""
        end_offset = self.offset
        if self.restart is not None:
            end_offset = min(end_offset, self.restart.offset)
        partition = self.partition
        return partition.role is not None and partition.log.high_watermark > end_offset

    def begin_marking(self, kept_offset: Offset) -> None:
        """From now on the log promises no more than what will be left; a mark is to say so."""
        self._leave(CutPhase.WAITING, CutPhase.MARKING)
        self.promised_offset = self.partition.log.promise_up_to(kept_offset)

    def give_up(self) -> bool:
        """Cut nothing, unless files are changed already; whether it is over at once."""
        if self.phase is CutPhase.MARKING:
            self.phase = CutPhase.GIVEN_UP
        return self.phase is CutPhase.WAITING and self.restart is None

    def end_marking(self) -> None:
        """Nothing that will be cut off is promised any more."""
        self._leave(CutPhase.MARKING, CutPhase.WAITING)

    def begin_cutting(self) -> None:
        """The owner begins. What is not committed any more is not shown from now on."""
        self._leave(CutPhase.WAITING, CutPhase.CUTTING)
        log = self.partition.log
        self.high_watermark = log.high_watermark
        log.lower_high_watermark(self.offset)

    def end_cutting(self) -> None:
        """The log is empty, and goes on elsewhere."""
        assert self.restart is not None, f"{self.key}: it goes on where it was"
        self._leave(CutPhase.CUTTING, CutPhase.WAITING)

    def begin_restarting(self) -> None:
        """Its new start is to be marked."""
        assert self.restart is not None, f"{self.key}: it goes on where it was"
        self._leave(CutPhase.WAITING, CutPhase.RESTARTING)
        self.promised_offset = self.partition.log.flushed_offset

    def undo_marking(self) -> None:
        """The mark did not reach the disk: what was durable still is."""
        assert self.promised_offset is not None, f"{self.key}: no mark was asked for"
        self.partition.log.promise_again(self.promised_offset)

    def _leave(self, phase: CutPhase, following: CutPhase) -> None:
        assert self.phase is phase, f"{self.key}: a cut goes from {self.phase} to {following}"
        self.phase = following


class RemovalPhase(enum.Enum):
    """How far a removal has come."""

    WAITING = enum.auto()
    """Something of the partition is in flight."""
    MARKING = enum.auto()
    """Marks that tell nothing of it are on their way to the disk."""
    MARKED = enum.auto()
    """No mark tells of it: its files go."""


class Removal:
    """A partition that goes: waits until nothing of it is in flight, and until no mark tells of
    it: it may come back under the same name."""

    __slots__ = ("kept_as", "partition", "phase", "token")

    def __init__(self, token: int, partition: Partition, kept_as: str) -> None:
        self.token = token
        self.partition = partition
        self.kept_as = kept_as
        self.phase = RemovalPhase.WAITING

    @property
    def key(self) -> PartitionKey:
        """Which partition."""
        return self.partition.log.key

    def begin_marking(self) -> None:
        """Marks are to tell nothing of it any more."""
        assert self.phase is RemovalPhase.WAITING, f"{self.key}: its marks are lowered twice"
        self.phase = RemovalPhase.MARKING

    def end_marking(self) -> None:
        """They do; or there is no room for them, and its files go all the same."""
        assert self.phase is RemovalPhase.MARKING, f"{self.key}: no mark was asked for"
        self.phase = RemovalPhase.MARKED


class Release(msgspec.Struct, frozen=True):
    """A partition that is let go: its files stay where they are, and the marks say what they
    said."""

    token: int
    partition: Partition


Promise = TrimHead | Cut | Removal
"""What comes true at the end of the flush that covers its mark."""


class Doomed(msgspec.Struct, frozen=True):
    """Segments that are no part of their log any more."""

    partition: PartitionKey
    segments: tuple[SegmentKey, ...]

"""The batches of one partition, in order: waiting, in flight, refused.

Owns their places. It must never hold a batch in two of them, nor let one of them come before an
older one of the lane.
"""

from collections import deque

from tidelog.client.engine.produce.batch import Batch
from tidelog.wire.errors import ErrorCode, TidelogError


class Lane:
    """One partition of one topic, as long as anything of it is unfinished."""

    __slots__ = (
        "broker_id",
        "in_flight",
        "leader_epoch",
        "newest_stored",
        "refused",
        "retry_at_ns",
        "stale_at_ns",
        "trouble",
        "trouble_since_ns",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.refused: list[Batch] = []
        """To be sent again once nothing is in flight any more."""
        self.newest_stored = -1
        """Number of the newest batch that is stored, or may be; kept without sequences only. A
        refused one that is older was overtaken, in whatever order the answers came."""
        self.retry_at_ns = 0
        self.stale_at_ns = -1
        """When a broker said that the leader is another: only newer metadata may be followed."""
        self.broker_id = -1
        """Who has what is in flight, or had it last."""
        self.leader_epoch = -1
        """The epoch that it was sent under."""
        self.trouble: TidelogError | None = None
        """Why nothing of it was acknowledged of late; None: nothing is known to be wrong."""
        self.trouble_since_ns = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the partition is left."""
        return not (self.waiting or self.in_flight or self.refused)

    @property
    def oldest(self) -> Batch:
        """The first that was opened: what waits is younger than all else."""
        if self.refused:
            return min((*self.refused, *self.in_flight[:1]), key=_number)
        if self.in_flight:
            return self.in_flight[0]
        assert self.waiting, "an idle lane has no batch"
        return self.waiting[0]

    @property
    def oldest_ns(self) -> int:
        """When the oldest batch was opened."""
        return self.oldest.opened_at_ns

    def note_trouble(self, error: TidelogError, now_ns: int) -> None:
        """Something hinders it; the first that did tells since when."""
        if self.trouble is None:
            self.trouble_since_ns = now_ns
        elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE:
            # What follows a refused batch is refused as well: the first refusal is the cause.
            return
        self.trouble = error

    def end_trouble(self) -> None:
        """Something of it was acknowledged."""
        self.trouble = None

    def has_older(self, batch: Batch) -> bool:
        """Whether a batch before this one is unfinished; it is taken out of the lane itself."""
        return any(
            each.number < batch.number for place in (self.in_flight, self.refused) for each in place
        )

    def put_back(self) -> None:
        """The refused batches stand before what waits again, in their order."""
        assert not self.in_flight, f"{self.in_flight!r} are in flight still"
        self.waiting.extendleft(sorted(self.refused, key=_number, reverse=True))
        self.refused = []

    def take_expired(self, opened_before_ns: int) -> list[Batch]:
        """Remove what was opened at that time or before, wherever it is; oldest first."""
        expired = [
            batch
            for batch in (*self.in_flight, *self.refused)
            if batch.opened_at_ns <= opened_before_ns
        ]
        if expired:
            self.in_flight = [batch for batch in self.in_flight if batch not in expired]
            self.refused = [batch for batch in self.refused if batch not in expired]
            expired.sort(key=_number)
        while self.waiting and self.waiting[0].opened_at_ns <= opened_before_ns:
            expired.append(self.waiting.popleft())
        return expired


def _number(batch: Batch) -> int:
    return batch.number

"""Decides what an answer, or its absence, means for a batch: done, or to be sent again.

Owns the two rules. `PlainJudge` is for batches without sequences: what may be stored is never sent
again. `SequenceJudge` is for numbered ones: it is sent again, in order, from the oldest
unacknowledged batch on, until the delivery timeout is over; the broker knows it again. Neither may
let a retry overtake a later batch of its partition. Stop 9 of a record's walk.

Theory of operation of the second. What is unanswered when a stream breaks, an answer that leaves
the outcome open and a refusal all end the same way: the batch waits until nothing of its partition
is in flight and then stands in front again. A refused sequence (`SEQUENCE_REFUSED`) has one of two
causes:

    an older batch of the partition is unfinished   it was refused itself: sent again behind it
    it is the oldest                                a gap that nobody fills: a new epoch begins

A gap comes from a batch that failed for good, from one whose delivery timeout was over, from
records that the partition has lost, or because it has forgotten a producer that was idle for long.
`sequences` tells what may be numbered anew then; what stands before it and may be stored ends
INDETERMINATE.
"""

from collections.abc import Callable
from typing import Final

from tidelog.client.engine.cluster.backoff import NS_PER_MS, Backoff
from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.cluster.topics import TopicDesk
from tidelog.client.engine.produce.batch import Acknowledgement, Batch, Outcome
from tidelog.client.engine.produce.lane import Lane
from tidelog.client.engine.produce.outcomes import (
    SEQUENCE_REFUSED,
    STALE_METADATA,
    TRANSACTION_OVER,
    indeterminate,
    is_known_not_stored,
    unanswered,
    undelivered,
)
from tidelog.client.engine.produce.sequences import PartitionSequence, Sequencer
from tidelog.client.errors import PeerError
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

FINISHING_MS: Final = 10
"""So soon the first batch of a transaction is sent again while the one before is being finished, if
the broker names no time."""
Finish = Callable[[Batch, Outcome], None]
STORED_SOMEWHERE = Acknowledgement(base_offset=Offset(-1))
"""Stored once, too long ago for the broker to name the offset."""


class Judge:
    """What both rules share. A batch that is judged has been taken out of its lane before."""

    def __init__(
        self,
        metadata: MetadataCache,
        topics: TopicDesk,
        backoff: Backoff,
        *,
        retries_max: int,
        finish: Finish,
    ) -> None:
        self.metadata = metadata
        self.topics = topics
        self.backoff = backoff
        self.retries_max = retries_max
        self.finish = finish

    def refuse(self, lane: Lane, batch: Batch, error: TidelogError, now_ns: int) -> None:
        """It is to be sent again, after a while, or at once if a newer leader is known."""
        batch.last_error = error
        lane.note_trouble(error, now_ns)
        lane.refused.append(batch)
        lane.retry_at_ns = now_ns + self.backoff.delay_ns(max(1, batch.attempts))
        if error.code in STALE_METADATA:
            self.topics.refresh(now_ns)
            if self.metadata.leader_epoch(batch.topic, batch.partition) > lane.leader_epoch:
                lane.retry_at_ns, lane.stale_at_ns = 0, -1
            else:
                lane.stale_at_ns = now_ns
        elif error.code is ErrorCode.INVALID_TIMESTAMP:
            # The leader's clock is off: look whether another one leads.
            self.topics.refresh(now_ns)

    def may_retry(self, batch: Batch) -> bool:
        """Whether the option `retries` leaves it another try."""
        return batch.attempts <= self.retries_max


class PlainJudge(Judge):
    """Without sequences."""

    def answered(self, lane: Lane, batch: Batch, outcome: Outcome, now_ns: int) -> None:
        """The broker said this of the batch."""
        if isinstance(outcome, Acknowledgement):
            lane.newest_stored = max(lane.newest_stored, batch.number)
            lane.end_trouble()
            self.finish(batch, outcome)
        elif not is_known_not_stored(outcome):
            self.lost(lane, batch, outcome, now_ns)
        elif outcome.retriable and self.may_retry(batch):
            self.refuse(lane, batch, outcome, now_ns)
        else:
            self.finish(batch, outcome)

    def lost(self, lane: Lane, batch: Batch, cause: TidelogError, now_ns: int) -> None:
        """No answer will come."""
        del now_ns
        lane.newest_stored = max(lane.newest_stored, batch.number)
        self.finish(batch, indeterminate(batch.topic, batch.partition, cause))

    def expire(self, lane: Lane, now_ns: int, timeout_ms: int) -> None:
        """End what was not sent in time; what is in flight has its request's timeout."""
        while lane.waiting and now_ns >= lane.waiting[0].opened_at_ns + timeout_ms * NS_PER_MS:
            batch = lane.waiting.popleft()
            hindered_ms = _hindered_ms(lane, now_ns)
            self.finish(batch, undelivered(batch, timeout_ms, hindered_ms, lane.trouble))

    def give_up(self, lane: Lane, batch: Batch, error: TidelogError) -> None:
        """It is not sent any more."""
        del lane
        self.finish(batch, error)

    def is_ready(self, lane: Lane, now_ns: int) -> bool:
        """Nothing is needed for a batch to be sent."""
        del self, lane, now_ns
        return True

    def settle(self, lane: Lane) -> None:
        """With nothing in flight the refused batches go back in front; those that a newer one has
        overtaken fail. An answer waits for all of its request: a refusal may be told last."""
        if lane.in_flight or not lane.refused:
            return
        lane.put_back()
        while lane.waiting and lane.waiting[0].number < lane.newest_stored:
            batch = lane.waiting.popleft()
            assert batch.last_error is not None, f"{batch!r} was refused without an error"
            self.finish(batch, batch.last_error)


class SequenceJudge(Judge):
    """With sequences."""

    def __init__(
        self,
        metadata: MetadataCache,
        topics: TopicDesk,
        backoff: Backoff,
        *,
        retries_max: int,
        finish: Finish,
        sequencer: Sequencer,
    ) -> None:
        super().__init__(metadata, topics, backoff, retries_max=retries_max, finish=finish)
        self.sequencer = sequencer

    def answered(self, lane: Lane, batch: Batch, outcome: Outcome, now_ns: int) -> None:
        """The broker said this of the batch."""
        if isinstance(outcome, Acknowledgement):
            lane.end_trouble()
            self.finish(batch, outcome)
        elif outcome.code is ErrorCode.DUPLICATE_SEQUENCE:
            # Known again, though no try of it could have been stored: then it is not this batch.
            unknown = indeterminate(batch.topic, batch.partition, outcome)
            self.finish(batch, STORED_SOMEWHERE if batch.is_doubtful else unknown)
        elif not is_known_not_stored(outcome):
            self.lost(lane, batch, outcome, now_ns)
        elif outcome.code in SEQUENCE_REFUSED:
            self._sequence_refused(lane, batch, outcome, now_ns)
        elif outcome.retriable and self.may_retry(batch):
            self.refuse(lane, batch, outcome, now_ns)
        else:
            self.give_up(lane, batch, outcome)

    def lost(self, lane: Lane, batch: Batch, cause: TidelogError, now_ns: int) -> None:
        """It may be stored; the next try will tell."""
        batch.is_doubtful = True
        if self.may_retry(batch):
            self.refuse(lane, batch, cause, now_ns)
            self.topics.refresh(now_ns)
        else:
            self.give_up(lane, batch, cause)

    def abandon(self, lane: Lane) -> None:
        """Another broker leads: no answer of the old one is waited for."""
        for batch in lane.in_flight:
            batch.is_doubtful = True
            batch.last_error = _another_leads(batch)
        lane.refused += lane.in_flight
        lane.in_flight = []
        lane.retry_at_ns = 0
        self.settle(lane)

    def _sequence_refused(self, lane: Lane, batch: Batch, error: TidelogError, now_ns: int) -> None:
        partition = self.sequencer.of(batch)
        if partition is None:
            # Its topic was created again meanwhile: it is given up with what waits of the old one.
            self.refuse(lane, batch, error, now_ns)
            return
        if lane.has_older(batch) or partition.is_void:
            self.refuse(lane, batch, error, now_ns)
            return
        if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
            partition.is_id_lost = True
            self.give_up(lane, batch, error)
            partition.is_void = True
        elif self.may_retry(batch):
            partition.void(batch, is_known=not batch.is_doubtful)
            self.refuse(lane, batch, error, now_ns)
        else:
            self.give_up(lane, batch, error)

    def give_up(self, lane: Lane, batch: Batch, error: TidelogError) -> None:
        """It is not sent any more. If it is not stored it leaves a gap."""
        del lane
        if batch.is_doubtful:
            self.finish(batch, indeterminate(batch.topic, batch.partition, error))
            return
        if batch.base_sequence >= 0 and (partition := self.sequencer.of(batch)) is not None:
            partition.void(batch, is_known=True)
        self.finish(batch, error)

    def expire(self, lane: Lane, now_ns: int, timeout_ms: int) -> None:
        """The delivery timeout ends a batch wherever it is."""
        in_flight = lane.in_flight
        for batch in lane.take_expired(now_ns - timeout_ms * NS_PER_MS):
            if batch in in_flight:
                batch.is_doubtful = True
            make = unanswered if batch.is_doubtful else undelivered
            hindered_ms = _hindered_ms(lane, now_ns)
            self.give_up(lane, batch, make(batch, timeout_ms, hindered_ms, lane.trouble))

    def settle(self, lane: Lane) -> None:
        """With nothing in flight the refused batches go back in front."""
        if not lane.in_flight and lane.refused:
            lane.put_back()

    def is_ready(self, lane: Lane, now_ns: int) -> bool:
        """Whether the oldest waiting batch has a number or can be given one."""
        partition = self.sequencer.of(lane.waiting[0])
        if partition is not None and partition.is_void:
            if lane.in_flight:
                return False
            self._begin_epoch(lane, partition)
        return bool(lane.waiting) and self.sequencer.is_ready(lane.waiting[0], now_ns)

    def _begin_epoch(self, lane: Lane, partition: PartitionSequence) -> None:
        """End what may be stored, up to the first batch that is not; number the rest anew."""
        head, void_from = lane.waiting[0], partition.void_from
        kept: list[Batch] = []
        while lane.waiting and lane.waiting[0].base_sequence >= 0:
            batch = lane.waiting.popleft()
            if not batch.is_doubtful:
                void_from = min(void_from, batch.number)
            if batch.number >= void_from:
                batch.unnumber()
                kept.append(batch)
            else:
                cause = batch.last_error
                assert cause is not None, f"{batch!r} is in doubt without a reason"
                self.finish(batch, indeterminate(batch.topic, batch.partition, cause))
        lane.waiting.extendleft(reversed(kept))
        self.sequencer.begin_epoch(head)


class TransactionJudge(SequenceJudge):
    """With sequences, within one transaction.

    Nothing is numbered anew here: what failed leaves a gap, and the transaction can only be
    aborted; the next one has another identity. Nor does it matter whether what failed is stored:
    what is not committed does not count.
    """

    def answered(self, lane: Lane, batch: Batch, outcome: Outcome, now_ns: int) -> None:
        """The broker said this of the batch."""
        if isinstance(outcome, TidelogError) and outcome.code in TRANSACTION_OVER:
            self.give_up(lane, batch, outcome)
        else:
            super().answered(lane, batch, outcome, now_ns)

    def refuse(self, lane: Lane, batch: Batch, error: TidelogError, now_ns: int) -> None:
        """As any other; while the transaction before is being finished it is a matter of
        milliseconds."""
        super().refuse(lane, batch, error, now_ns)
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            told_ms = error.retry_after_ms if isinstance(error, PeerError) else 0
            delay_ms = told_ms or FINISHING_MS * batch.attempts
            lane.retry_at_ns = now_ns + min(delay_ms, self.backoff.max_ms) * NS_PER_MS

    def _sequence_refused(self, lane: Lane, batch: Batch, error: TidelogError, now_ns: int) -> None:
        if lane.has_older(batch):
            self.refuse(lane, batch, error, now_ns)
        else:
            self.give_up(lane, batch, error)

    def give_up(self, lane: Lane, batch: Batch, error: TidelogError) -> None:
        """It is not sent any more, nor is anything behind it."""
        del lane
        if (partition := self.sequencer.of(batch)) is not None:
            partition.is_void = True
        self.finish(batch, error)

    def is_ready(self, lane: Lane, now_ns: int) -> bool:
        """Whether the oldest waiting batch may follow what its partition was sent."""
        partition = self.sequencer.of(lane.waiting[0])
        if partition is None or not partition.is_void:
            return self.sequencer.is_ready(lane.waiting[0], now_ns)
        while lane.waiting:
            self.finish(batch := lane.waiting.popleft(), _behind_a_failure(batch))
        return False


def _behind_a_failure(batch: Batch) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_TRANSACTION_STATE,
        tried=f"produce to {batch.topic}-{batch.partition}",
        happened="an earlier record of the transaction failed",
        hint="Abort the transaction and begin again.",
    )


def _hindered_ms(lane: Lane, now_ns: int) -> int | None:
    return None if lane.trouble is None else (now_ns - lane.trouble_since_ns) // NS_PER_MS


def _another_leads(batch: Batch) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_LEADER,
        tried=f"produce to {batch.topic}-{batch.partition}",
        happened="another broker became the leader before it was acknowledged",
    )

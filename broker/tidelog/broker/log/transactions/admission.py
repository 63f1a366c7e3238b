"""Whether a leader may append a batch or a marker of a transaction. Pure.

Owns the verification of first batches and the judgement of markers, by the leader alone and for as
long as it leads: a follower takes what its leader has taken, also what no leader would take any
more. It must never append a batch that no coordinator has verified for its very transaction, nor
let a marker end another transaction than its own.

Theory of operation. Every transaction of a producer has an epoch of its own, e; its marker carries
e + 1. A partition remembers the highest epoch of a batch or marker of each producer, so whatever is
below it is over.

A batch of epoch e, as it arrives (`judge`) and once more in its append's turn (`admit`):

    an older epoch                   TRANSACTION_ABORTED, without asking: its end stands here. That
                                     is no fence. A producer that stalled past its timeout goes on
                                     by a takeover, which tells it if it is a zombie
    e, and e is open here            append: its first batch was verified
    an earlier epoch is open here    CONCURRENT_TRANSACTIONS, without asking: its marker comes first
    else                             ask the coordinator to add the partition, and append when it
                                     says yes

What arrives while the coordinator is asked waits for the same answer. Only the lowest sequence
that arrived meanwhile may be the first to be appended, whatever order the answers are taken in: a
later one in front of it would make it look like a gap. The answer may be old when the append's turn
comes: a marker in between has ended the transaction. So the turn looks again, and finds either the
epoch of that marker or no verification, because whatever ends an epoch takes its verification away.

A marker (`judge_marker`):

    of an older coordinator          NOT_COORDINATOR: the sender steps down
    an older epoch                   FENCED_PRODUCER_EPOCH
    the same epoch, nothing open     it is there already: its answer was lost, or its coordinator
                                     died. The answer waits until it is committed
    the same epoch, open             INVALID_TRANSACTION_STATE: no end has the epoch of its data
    a higher epoch                   append, also with nothing open: a batch of the transaction that
                                     is still on its way finds that it is over
"""

import enum
from typing import Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

NO_COORDINATOR: Final = -1
"""No marker of the producer is known."""


class ProducerHere(msgspec.Struct, frozen=True, kw_only=True):
    """What the log knows of a producer, from the batches that it holds."""

    epoch: int
    """The highest of a batch or marker."""
    is_open: bool
    """It has data here behind its last marker."""
    coordinator_epoch: int = NO_COORDINATOR
    """Of its last marker."""


class FirstBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class MarkerHere(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at of a marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class Append(msgspec.Struct, frozen=True):
    """The transaction is open here: the batch goes to the log."""


class AskCoordinator(msgspec.Struct, frozen=True):
    """Nobody has asked yet: ask, and tell `on_answer`."""

    ticket: int


class WaitForAnswer(msgspec.Struct, frozen=True):
    """Somebody has asked: the batch waits for the same answer."""

    ticket: int


Verdict = Append | AskCoordinator | WaitForAnswer


class MarkerVerdict(enum.Enum):
    """What becomes of a marker that is not refused."""

    APPEND = "append"
    ALREADY_THERE = "already_there"
    """Answer once the log is committed as far as it reaches now."""


class _Verification(msgspec.Struct, kw_only=True):
    epoch: int
    ticket: int
    lowest_sequence: int
    is_verified: bool = False


class Admission:
    """What one leader is verifying of one partition; a new leadership begins with none."""

    def __init__(self, *, tickets_after: int = 0) -> None:
        """`tickets_after`: above every ticket of another `Admission` of the same partition, so that
        an answer that was meant for that one counts for nothing here."""
        self._by_producer: Final[dict[int, _Verification]] = {}
        self._last_ticket = tickets_after

    def __len__(self) -> int:
        return len(self._by_producer)

    def judge(self, here: ProducerHere | None, batch: FirstBatch, *, tried: str) -> Verdict:
        """Says what to do with a transactional batch that arrives, or refuses it."""
        if _is_open(here, batch, tried):
            return Append()
        going_on = self._by_producer.get(batch.producer_id)
        if going_on is not None and batch.producer_epoch < going_on.epoch:
            raise _is_over(batch, going_on.epoch, tried)
        if going_on is not None and batch.producer_epoch == going_on.epoch:
            going_on.lowest_sequence = min(going_on.lowest_sequence, batch.base_sequence)
            return WaitForAnswer(going_on.ticket)
        # A higher epoch: the producer has gone on, and what was asked for the former one counts no
        # more, whatever is answered.
        self._last_ticket += 1
        self._by_producer[batch.producer_id] = _Verification(
            epoch=batch.producer_epoch,
            ticket=self._last_ticket,
            lowest_sequence=batch.base_sequence,
        )
        return AskCoordinator(self._last_ticket)

    def on_answer(self, producer_id: int, ticket: int, error: TidelogError | None) -> None:
        """Takes the coordinator's answer; one to a question that counts no more changes nothing."""
        going_on = self._by_producer.get(producer_id)
        if going_on is None or going_on.ticket != ticket:
            return
        if error is None:
            going_on.is_verified = True
        else:
            del self._by_producer[producer_id]

    def admit(self, here: ProducerHere | None, batch: FirstBatch, *, tried: str) -> None:
        """Refuses a batch in its append's turn that must not be appended now."""
        if _is_open(here, batch, tried):
            return
        going_on = self._by_producer.get(batch.producer_id)
        is_verified = (
            going_on is not None and going_on.is_verified and going_on.epoch == batch.producer_epoch
        )
        if going_on is None or not is_verified:
            raise TidelogError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                tried=tried,
                happened="its transaction is not verified here any more",
            )
        if batch.base_sequence != going_on.lowest_sequence:
            raise TidelogError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                tried=tried,
                happened=f"sequence {going_on.lowest_sequence} of the same transaction arrived "
                "while it was verified, and is appended first",
            )

    def judge_marker(
        self, here: ProducerHere | None, marker: MarkerHere, *, tried: str
    ) -> MarkerVerdict:
        """Says what becomes of a marker in its append's turn, or refuses it."""
        if here is None:
            return MarkerVerdict.APPEND
        if marker.coordinator_epoch < here.coordinator_epoch:
            raise TidelogError(
                ErrorCode.NOT_COORDINATOR,
                tried=tried,
                happened=f"a coordinator of epoch {here.coordinator_epoch} has written here, this "
                f"one has {marker.coordinator_epoch}",
            )
        if marker.producer_epoch < here.epoch:
            raise TidelogError(
                ErrorCode.FENCED_PRODUCER_EPOCH,
                tried=tried,
                happened=f"producer {marker.producer_id} is at epoch {here.epoch} here, the marker "
                f"carries {marker.producer_epoch}",
            )
        if marker.producer_epoch > here.epoch:
            return MarkerVerdict.APPEND
        if here.is_open:
            raise TidelogError(
                ErrorCode.INVALID_TRANSACTION_STATE,
                tried=tried,
                happened=f"the transaction that is open here has the marker's epoch {here.epoch}",
            )
        return MarkerVerdict.ALREADY_THERE

    def on_batch(self, producer_id: int, producer_epoch: int) -> None:
        """Takes note of a batch in the log: its transaction is open, and needs no verification."""
        going_on = self._by_producer.get(producer_id)
        if going_on is not None and going_on.epoch <= producer_epoch:
            del self._by_producer[producer_id]

    def on_marker(self, producer_id: int, producer_epoch: int) -> None:
        """Takes note of a marker in the log: every transaction below its epoch is over."""
        going_on = self._by_producer.get(producer_id)
        if going_on is not None and going_on.epoch < producer_epoch:
            del self._by_producer[producer_id]

    def clear(self) -> None:
        """Forgets everything: the broker leads no more, or leads again in another epoch.

        Tickets go on counting, so that an answer to a question of before verifies nothing.
        """
        self._by_producer.clear()


def _is_open(here: ProducerHere | None, batch: FirstBatch, tried: str) -> bool:
    """Returns whether the batch's own transaction is open; refuses it if it cannot be the next."""
    if here is None:
        return False
    if batch.producer_epoch < here.epoch:
        raise _is_over(batch, here.epoch, tried)
    if here.is_open and here.epoch < batch.producer_epoch:
        raise TidelogError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            tried=tried,
            happened=f"the transaction of epoch {here.epoch} before it is not ended here yet",
        )
    return here.is_open


def _is_over(batch: FirstBatch, epoch: int, tried: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TRANSACTION_ABORTED,
        tried=tried,
        happened=f"the transaction of epoch {batch.producer_epoch} has ended: producer "
        f"{batch.producer_id} is at epoch {epoch} here",
        hint="Take the transactional id over again with the last identity, then begin again.",
    )

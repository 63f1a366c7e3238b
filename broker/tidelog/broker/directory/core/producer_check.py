"""Whether a batch of an idempotent producer is the next one, one that is stored, or neither. Pure.

Owns the judgement of epochs and sequences, made by the leader in the order in which batches are
planned. It must never let a batch in twice, nor one before those that the producer sent before it;
followers never judge: they take what their leader has taken. Stop 5 of a record's walk.

    epoch below the known one             FENCED_PRODUCER_EPOCH
    nothing known, first sequence not 0   UNKNOWN_PRODUCER_ID
    a new epoch, first sequence not 0     OUT_OF_ORDER_SEQUENCE
    continues the last batch              append
    one of the last batches again         answered with the offset that it got
    further ahead                         OUT_OF_ORDER_SEQUENCE: a batch before it is missing
    overlaps with the last batches        INVALID_ARGUMENT: it is none of them, and not stored
    further back                          DUPLICATE_SEQUENCE: stored, its offset is forgotten

Sequences are 31 bits and begin again at 0 behind the highest: what is ahead and what is back is
told by the shorter way round.
"""

from typing import Final

from tidelog.broker.log.producer_state import ProducedBatch, Producer
from tidelog.wire.batch import BatchHeader
from tidelog.wire.errors import ErrorCode, TidelogError

SEQUENCES: Final = 2**31
"""How many there are."""


def is_next(last: BatchHeader, header: BatchHeader) -> bool:
    """Whether the batch continues the last one of its producer, also in the epoch."""
    if header.producer_epoch != last.producer_epoch or header.base_sequence < 0:
        return False
    expected = (last.base_sequence + last.last_offset_delta + 1) % SEQUENCES
    return header.base_sequence == expected


def find_duplicate(
    known: Producer | None, header: BatchHeader, *, tried: str
) -> ProducedBatch | None:
    """The stored batch that this one is again; None: it is to be appended. Else it is refused."""
    if known is not None and header.producer_epoch < known.epoch:
        raise TidelogError(
            ErrorCode.FENCED_PRODUCER_EPOCH,
            tried=tried,
            happened=f"producer {header.producer_id} is at epoch {known.epoch}, "
            f"the batch carries epoch {header.producer_epoch}",
        )
    if header.base_sequence < 0:
        return None
    if known is None or header.producer_epoch > known.epoch or not known.batches:
        if header.base_sequence:
            raise _not_first(known, header, tried)
        return None
    last = known.batches[-1]
    expected = (last.base_sequence + last.last_offset_delta + 1) % SEQUENCES
    if header.base_sequence == expected:
        return None
    for batch in reversed(known.batches):
        is_same = (batch.base_sequence, batch.last_offset_delta) == (
            header.base_sequence,
            header.last_offset_delta,
        )
        if is_same:
            return batch
    is_ahead = (header.base_sequence - expected) % SEQUENCES < SEQUENCES // 2
    if not is_ahead:
        _refuse_overlap(known, header, expected, tried)
    raise TidelogError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE if is_ahead else ErrorCode.DUPLICATE_SEQUENCE,
        tried=tried,
        happened=f"producer {header.producer_id} sent sequence {header.base_sequence}, "
        f"{expected} is its next",
    )


def _refuse_overlap(known: Producer, header: BatchHeader, expected: int, tried: str) -> None:
    """Whoever hears of a duplicate takes all of its records for stored: of what overlaps with the
    last batches, and is none of them, the leader knows that some are not, or that they were sent
    in other batches."""
    count = header.last_offset_delta + 1
    back = (expected - header.base_sequence) % SEQUENCES
    known_back = (expected - known.batches[0].base_sequence) % SEQUENCES
    if back - count >= known_back:
        return
    sequence, last = header.base_sequence, (header.base_sequence + count - 1) % SEQUENCES
    if back < count:
        happened = (
            f"{expected} to {last} are not stored, those before are: {expected} is its next one"
        )
    else:
        happened = f"{sequence} to {last} are stored in batches with other limits"
    raise TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=tried,
        happened=f"producer {header.producer_id} sent the sequences {sequence} to {last}, of which "
        f"{happened}; the batch is not stored",
        hint="Send a batch again with the records and the sequences that it had, and new records "
        "under the next sequence.",
    )


def _not_first(known: Producer | None, header: BatchHeader, tried: str) -> TidelogError:
    sent = f"the first batch carries sequence {header.base_sequence}"
    if known is None:
        return TidelogError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            tried=tried,
            happened=f"nothing is known of producer {header.producer_id}, {sent}",
        )
    return TidelogError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        tried=tried,
        happened=f"producer {header.producer_id} begins epoch {header.producer_epoch}, {sent}",
    )

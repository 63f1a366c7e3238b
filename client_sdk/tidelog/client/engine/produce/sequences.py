"""Numbers batches, so that a partition can tell a resend from a new batch.

Owns, for each partition, the producer's epoch there and the sequence of the next record. A batch is
numbered when it is sent for the first time and keeps its number for every resend. It must never
give one number to two batches, nor a second number to a batch that may be stored under its first.

Theory of operation. A partition takes batches of one (producer id, epoch) only if each continues
the one before: a number that was given and will never be stored is a gap that stops everything
behind it. So the partition begins a new epoch, with sequence 0, as soon as it is known

    which batch is `void`: not stored by any of its tries. Nothing behind it is stored either,
    because of the gap. These are numbered anew under the next epoch.

What stands before the void batch and may be stored must not be numbered anew. A late copy of it
that arrives after the first batch of the new epoch is refused: its epoch is over.
"""

from typing import Final

from tidelog.client.engine.produce.batch import Batch
from tidelog.client.engine.produce.producer_ids import ProducerIdDesk, ProducerIdentity

SEQUENCE_MAX: Final = 2**31 - 1
"""After it comes 0."""
EPOCH_MAX: Final = 32_766
"""The last epoch of a producer id that is used: then another id is taken."""
_NOTHING: Final = 1 << 62


class PartitionSequence:
    """Where the producer stands in one partition."""

    __slots__ = (
        "is_id_lost",
        "is_void",
        "next_sequence",
        "producer_epoch",
        "producer_id",
        "void_from",
    )

    def __init__(self, identity: ProducerIdentity) -> None:
        self.producer_id = identity.producer_id
        self.producer_epoch = identity.producer_epoch
        self.next_sequence = 0
        self.is_void = False
        """A new epoch is to begin, once nothing of the partition is in flight."""
        self.is_id_lost = False
        """A new producer id is to be taken with it."""
        self.void_from = _NOTHING
        """Number of the first batch that is known to be stored by none of its tries."""

    def void(self, batch: Batch, *, is_known: bool) -> None:
        """The batch's number is a gap, or behind one; `is_known`: none of its tries is stored."""
        self.is_void = True
        if is_known:
            self.void_from = min(self.void_from, batch.number)


class Sequencer:
    """All partitions of one producer."""

    def __init__(self, desk: ProducerIdDesk) -> None:
        self.desk = desk
        self.partitions: dict[tuple[bytes, int], PartitionSequence] = {}

    def of(self, batch: Batch) -> PartitionSequence | None:
        """Where its partition stands; None: nothing was numbered there under a valid id."""
        return self.partitions.get((batch.topic_id, batch.partition))

    def is_ready(self, batch: Batch, now_ns: int) -> bool:
        """Whether the batch has a number or can be given one; if not, an identity is on its way."""
        if batch.base_sequence >= 0 or self.of(batch) is not None:
            return True
        self.desk.want(now_ns)
        return self.desk.identity is not None

    def number(self, batch: Batch) -> None:
        """Before it is sent; a batch that has a number keeps it."""
        if batch.base_sequence >= 0:
            return
        partition = self.of(batch)
        if partition is None:
            identity = self.desk.identity
            assert identity is not None, f"{batch!r} is sent without an identity"
            partition = PartitionSequence(identity)
            self.partitions[batch.topic_id, batch.partition] = partition
        assert not partition.is_void, f"{batch!r} is numbered behind a gap"
        batch.producer_id = partition.producer_id
        batch.producer_epoch = partition.producer_epoch
        batch.base_sequence = partition.next_sequence
        partition.next_sequence = (partition.next_sequence + len(batch.columns)) & SEQUENCE_MAX

    def begin_epoch(self, batch: Batch) -> None:
        """What is numbered from now on in the batch's partition belongs to a new epoch, or to a new
        producer id."""
        partition = self.of(batch)
        assert partition is not None, f"{batch!r} is of a partition without an epoch"
        if partition.is_id_lost or partition.producer_epoch >= EPOCH_MAX:
            self.desk.give_up(partition.producer_id)
            self.forget(batch)
            return
        partition.producer_epoch += 1
        partition.next_sequence = 0
        partition.is_void, partition.void_from = False, _NOTHING

    def forget(self, batch: Batch) -> None:
        """The partition is gone, with all that it knew of this producer."""
        self.partitions.pop((batch.topic_id, batch.partition), None)

"""What became of a bulk call: where each of its records is stored, or why it is not.

Owns the public values and how they follow from the outcomes of batches. Waiting is the drivers'.
"""

import copy
from collections.abc import Iterable, Sequence

import msgspec

from tidelog.client.bulk.appending import Part
from tidelog.client.engine.produce.batch import Acknowledgement
from tidelog.wire.errors import ErrorCode, TidelogError


class SentPart(msgspec.Struct, frozen=True, kw_only=True):
    """Records that follow each other in one partition."""

    topic: str
    partition: int
    offset: int
    """Of the first of them, the others follow; -1 with acks=0."""
    positions: Sequence[int]
    """Which of the records given they are: 0 is the first."""
    leader_epoch: int = -1
    error: TidelogError | None = None
    """Why they are not stored, or not known to be; None: they are acknowledged."""

    def __len__(self) -> int:
        return len(self.positions)


class SentBatch(msgspec.Struct, frozen=True, kw_only=True):
    """All records of a call, acknowledged."""

    topic: str
    parts: tuple[SentPart, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def offsets(self) -> list[int]:
        """Of each record, in the order in which they were given; -1 with acks=0."""
        found = [-1] * len(self)
        for part in self.parts:
            if part.offset >= 0:
                for offset, position in enumerate(part.positions, part.offset):
                    found[position] = offset
        return found


def sent_part(topic: str, part: Part) -> SentPart:
    """Of a batch that has its outcome."""
    batch, outcome = part.batch, part.batch.outcome
    assert outcome is not None, f"{batch!r} has no outcome yet"
    positions = part.positions
    if not isinstance(positions, range):
        positions = [part.base + position for position in positions]
    if not isinstance(outcome, Acknowledgement):
        return SentPart(
            topic=topic,
            partition=batch.partition,
            offset=-1,
            positions=positions,
            error=copy.copy(outcome),
        )
    base = outcome.base_offset
    return SentPart(
        topic=topic,
        partition=batch.partition,
        offset=base + part.first_index if base >= 0 else -1,
        positions=positions,
        leader_epoch=outcome.leader_epoch,
    )


def first_error(topic: str, parts: Iterable[Part], count: int) -> TidelogError | None:
    """What the caller is told of a call of which something failed: the first error, and how much
    of the call it and others concern; None: nothing did.
    """
    failed = [part for part in parts if isinstance(part.batch.outcome, TidelogError)]
    if not failed:
        return None
    error = failed[0].batch.outcome
    assert isinstance(error, TidelogError), "a part that failed has an error"
    missing = sum(len(part.positions) for part in failed)
    told = copy.copy(error)
    told.add_note(
        f"{missing} of the {count} records sent to {topic} by this call are concerned: "
        "parts() of the future tells which"
    )
    return told


def waiting_too_long(topic: str, timeout: float | None) -> TidelogError:
    """For get()."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=f"wait for a batch of records to {topic}",
        happened=f"not all are acknowledged within timeout={timeout} s; they may still be",
    )

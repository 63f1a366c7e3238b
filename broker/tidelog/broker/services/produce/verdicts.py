"""Lets nobody but a leader that has shown that it leads tell a producer what it acts on for good.

A broker that was stopped takes itself for the leader while another one has replaced it, and judges
by what it knew: the next record of a healthy producer leaves a gap there, a producer that began
elsewhere is unknown, a limit that was raised is exceeded. A producer that hears so gives up what it
sends. What is stored needs no such proof: only the set that would elect another leader can
acknowledge it. So a refusal that no retry cures is checked before it is told:

    refused for good ─▶ index of the quorum ─▶ metadata of that index ─┬─ led since ─▶ told
                               └─ no answer in time ─▶ NOT_LEADER      └─ not ─▶ NOT_LEADER or
                                                                          FENCED_LEADER_EPOCH

Owns which refusals are of that kind. It must never let one pass that was made in an older leader
epoch than the one that is confirmed. Stop 5 of a record's walk.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.services.shared.leadership import Confirmation, Leadership
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import TopicId

DOUBTED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.DUPLICATE_SEQUENCE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.INVALID_TRANSACTION_STATE,
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.INVALID_ARGUMENT,
    }
)
"""Not retriable, and said by what a leader knows of producers or of the topic's settings. The
others tell of the batch itself, or of this broker's disk."""

Judged = tuple[TopicId, int, int]
"""A partition, and the leader epoch in which a batch for it was judged."""


class Verdicts:
    """Of all partitions of one broker."""

    def __init__(self, replicas: Replicas, leadership: Leadership) -> None:
        self._replicas = replicas
        self._leadership = leadership

    async def confirm(
        self, judged: Sequence[Judged], errors: Sequence[TidelogError | None]
    ) -> list[TidelogError | None]:
        """What may be told of each batch of a request; the quorum is asked once for all."""
        confirmation = Confirmation(self._leadership)
        told: list[TidelogError | None] = []
        for place, error in zip(judged, errors, strict=True):
            if error is None or error.code not in DOUBTED:
                told.append(error)
            else:
                told.append(await self._confirm(place, error, confirmation))
        return told

    async def _confirm(
        self, judged: Judged, error: TidelogError, confirmation: Confirmation
    ) -> TidelogError:
        topic_id, partition, leader_epoch = judged
        try:
            await confirmation.wait(error.tried)
        except TidelogError as failure:
            # Nothing is stored, and another broker may say better: what NOT_LEADER means.
            return TidelogError(
                ErrorCode.NOT_LEADER,
                tried=error.tried,
                happened=f"{error.happened}; but {failure.happened}",
                hint=failure.hint,
            )
        try:
            self._replicas.find(topic_id, partition, leader_epoch, tried=error.tried)
        except TidelogError as failure:
            return failure
        return error

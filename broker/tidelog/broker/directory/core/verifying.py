"""What a leader verifies with coordinators for one partition, and who waits for it. Pure.

Owns the partition's `Admission` and, for each question that is not answered, those who wait behind
it. Only its own methods change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.broker.log.transactions.admission import Admission, AskCoordinator, WaitForAnswer
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.directory.core.messages import AppendBatch
    from tidelog.broker.log.transactions.admission import FirstBatch, ProducerHere

QUESTIONS_MAX: Final = 1_000
"""Transactions of one partition whose coordinators have not answered yet."""
VERIFIED_MAX: Final = 10_000
"""Transactions of one partition that are verified and have nothing in its log yet: as many as the
producers that a log remembers. Each goes with its first batch, or with the marker that ends it."""
NOTHING_TO_ASK: Final = 0


class Waiting(msgspec.Struct, frozen=True):
    """One who waits for a coordinator's answer, with the batch that goes to the queue then."""

    token: int
    append: AppendBatch | None
    """None: it waits for the answer alone."""


class Verifying:
    """Of one partition, for as long as this replica leads it."""

    __slots__ = ("_waiting", "admission")

    def __init__(self) -> None:
        self.admission: Final = Admission()
        self._waiting: dict[int, list[Waiting]] = {}
        """By ticket, in the order in which they arrived."""

    def __len__(self) -> int:
        """How many questions are not answered."""
        return len(self._waiting)

    def judge(
        self, here: ProducerHere | None, batch: FirstBatch, waiting: Waiting, *, tried: str
    ) -> int | None:
        """Returns None where nobody need wait; else `waiting` waits from now on, for the answer to
        the question with the ticket returned, or to one that was asked before (NOTHING_TO_ASK).

        Raises what speaks against the batch.
        """
        verdict = self.admission.judge(here, batch, tried=tried)
        if isinstance(verdict, AskCoordinator):
            self._check_room(batch.producer_id, verdict.ticket, tried)
            self._waiting[verdict.ticket] = [waiting]
            return verdict.ticket
        if isinstance(verdict, WaitForAnswer) and verdict.ticket in self._waiting:
            self._waiting[verdict.ticket].append(waiting)
            return NOTHING_TO_ASK
        return None

    def _check_room(self, producer_id: int, ticket: int, tried: str) -> None:
        """Whoever is refused here has asked nobody: the next batch asks."""
        if len(self._waiting) >= QUESTIONS_MAX:
            full = f"{QUESTIONS_MAX} transactions wait to be verified with their coordinators"
        elif len(self.admission) > VERIFIED_MAX:
            full = f"{VERIFIED_MAX} transactions are verified and have written nothing yet"
        else:
            return
        error = TidelogError(
            ErrorCode.RESOURCE_EXHAUSTED,
            tried=tried,
            happened=f"{full}, which is the limit of a partition; nothing was stored",
            hint="Send the batch again after a moment, or spread producers over partitions.",
        )
        self.admission.on_answer(producer_id, ticket, error)
        raise error

    def on_answer(self, producer_id: int, ticket: int, error: TidelogError | None) -> list[Waiting]:
        """Returns those who waited for the answer; none where it counts no more."""
        self.admission.on_answer(producer_id, ticket, error)
        return self._waiting.pop(ticket, [])

    def take_waiting(self) -> list[Waiting]:
        """Returns all who wait, and forgets what was asked and what was verified."""
        taken = [each for waiting in self._waiting.values() for each in waiting]
        self._waiting.clear()
        self.admission.clear()
        return taken

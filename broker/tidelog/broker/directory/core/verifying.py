"""What a leader verifies with coordinators for one partition, and who waits for it. Pure.

Owns the partition's `Admission` and, for each question that is not answered, those who wait behind
it; and those who wait for the end of the transaction before theirs, so that nothing is asked for
them yet. Only its own methods change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidelog.broker.log.transactions.admission import Admission, AskCoordinator, WaitForAnswer
from tidelog.wire.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.broker.directory.core.messages import (
        AppendBatch,
        AppendTransactional,
        VerifyTransaction,
    )
    from tidelog.broker.log.transactions.admission import FirstBatch, ProducerHere

QUESTIONS_MAX: Final = 1_000
"""Transactions of one partition whose coordinators have not answered yet."""
VERIFIED_MAX: Final = 10_000
"""Transactions of one partition that are verified and have nothing in its log yet: as many as the
producers that a log remembers. Each goes with its first batch, or with the marker that ends it."""
EARLY_MAX: Final = 1_000
"""Batches of one partition that wait for the end of the transaction before theirs; more are told to
come again."""
EARLY_MS_MAX: Final = 400
"""How long they wait, give or take a tick. An end takes a few milliseconds from its decision to its
marker, and a producer that is told to come again takes many times that."""
NOTHING_TO_ASK: Final = 0
TICKETS: Final = 2**40
"""Of one opening of a partition: more than it ever uses."""


class Waiting(msgspec.Struct, frozen=True):
    """One who waits for a coordinator's answer, with the batch that goes to the queue then."""

    token: int
    append: AppendBatch | None
    """None: it waits for the answer alone."""


class Early(msgspec.Struct, frozen=True):
    """One that has arrived before the marker of the transaction before its own."""

    token: int
    producer_id: int
    since_ms: int
    message: AppendTransactional | VerifyTransaction


class Verifying:
    """Of one partition, for as long as this replica leads it."""

    __slots__ = ("_early", "_waiting", "admission")

    def __init__(self, *, tickets_after: int) -> None:
        self.admission: Final = Admission(tickets_after=tickets_after)
        self._early: list[Early] = []
        """In the order in which they arrived."""
        self._waiting: dict[int, list[Waiting]] = {}
        """By ticket, in the order in which they arrived."""

    def __len__(self) -> int:
        """How many questions are not answered, and batches that wait for a marker."""
        return len(self._waiting) + len(self._early)

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

    def wait_for_end(self, early: Early) -> bool:
        """Let it wait for the marker of the transaction before; False: too many do."""
        if len(self._early) >= EARLY_MAX:
            return False
        self._early.append(early)
        return True

    def take_early(self, producer_id: int) -> list[Early]:
        """Returns those of the producer that waited for its marker, in their order."""
        if not self._early:
            return []
        taken = [each for each in self._early if each.producer_id == producer_id]
        self._early = [each for each in self._early if each.producer_id != producer_id]
        return taken

    def take_too_early(self, now_ms: int) -> list[Early]:
        """Returns those that have waited for long enough, with all of their producers: a later
        batch would look like a gap if it went on without them."""
        late = {each.producer_id for each in self._early if now_ms - each.since_ms >= EARLY_MS_MAX}
        return [early for producer_id in sorted(late) for early in self.take_early(producer_id)]

    @property
    def has_early(self) -> bool:
        """Whether somebody waits for a marker."""
        return bool(self._early)

    def take_waiting(self) -> list[int]:
        """Returns the tokens of all who wait, and forgets what was asked and what was verified."""
        taken = [each.token for waiting in self._waiting.values() for each in waiting]
        taken += [each.token for each in self._early]
        self._waiting.clear()
        self._early.clear()
        self.admission.clear()
        return taken

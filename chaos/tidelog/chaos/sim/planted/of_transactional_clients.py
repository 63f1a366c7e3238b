"""Bugs that the transactions suite must find, second half: in what readers see, and in clients."""

from typing import Final

from tidelog.broker.log.transactions.aborted import AbortedIndex, AbortedTransaction
from tidelog.broker.log.transactions.open import OpenTransactions
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.chaos.sim.planted.of_transactions import BROKEN, plants
from tidelog.chaos.sim.planted.of_transactions import PLANTED as OF_BROKERS
from tidelog.client.engine.transaction import outcomes, requests
from tidelog.client.engine.transaction.messages import Call
from tidelog.client.engine.transaction.phases import Decision, Ending, Ready
from tidelog.client.engine.transaction.state import TransactionState
from tidelog.wire.errors import TidelogError

# -- what readers are shown ------------------------------------------------------------------------


def read_to_the_watermark() -> Substitution:
    """Readers of committed records are shown what is open."""

    def last_stable_offset(self: OpenTransactions, high_watermark: int) -> int:
        del self
        return high_watermark

    return Substitution(OpenTransactions, "last_stable_offset", last_stable_offset)


def hold_back_for_the_newest_only() -> Substitution:
    """Of several open transactions the one that began last counts."""

    def first_open_offset(self: OpenTransactions) -> int:
        return next(reversed(self._started.values()), -1)

    return Substitution(OpenTransactions, "first_open_offset", first_open_offset)


def forget_what_was_aborted() -> Substitution:
    """Readers are told of no aborted transaction."""

    def overlapping(
        self: AbortedIndex, begin_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        del self, begin_offset, end_offset
        return []

    return Substitution(AbortedIndex, "overlapping", overlapping)


def tell_what_was_aborted_within() -> Substitution:
    """Readers that begin in the middle of an aborted transaction are not told of it."""
    original = AbortedIndex.overlapping

    def overlapping(
        self: AbortedIndex, begin_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        found = original(self, begin_offset, end_offset)
        return [each for each in found if each.first_offset >= begin_offset]

    return Substitution(AbortedIndex, "overlapping", overlapping)


def tell_what_ended_within() -> Substitution:
    """Readers are told of an aborted transaction only with its marker."""
    original = AbortedIndex.overlapping

    def overlapping(
        self: AbortedIndex, begin_offset: int, end_offset: int
    ) -> list[AbortedTransaction]:
        found = original(self, begin_offset, end_offset)
        return [each for each in found if each.marker_offset < end_offset]

    return Substitution(AbortedIndex, "overlapping", overlapping)


# -- clients ---------------------------------------------------------------------------------------


def begin_after_an_unknown_end() -> Substitution:
    """An end that was not answered in time is over, and the next transaction begins."""
    original = outcomes.too_late

    def too_late(state: TransactionState, call: Call, why: TidelogError) -> None:
        is_sent = isinstance(state.phase, Ending) and state.may_be_committed
        original(state, call, why)
        if is_sent:
            state.become(Ready())

    return Substitution(outcomes, "too_late", too_late)


def commit_before_all_is_stored() -> Substitution:
    """The end overtakes the records."""
    original = requests.are_wanted

    def are_wanted(state: TransactionState) -> bool:
        is_early = isinstance(state.phase, Ending) and state.phase.decision is Decision.COMMIT
        return is_early or original(state)

    return Substitution(requests, "are_wanted", are_wanted)


PLANTED: Final[dict[str, Plant]] = OF_BROKERS | plants(
    (read_to_the_watermark, BROKEN),
    (hold_back_for_the_newest_only, (*BROKEN, "stable_fell")),
    (forget_what_was_aborted, BROKEN),
    (tell_what_was_aborted_within, BROKEN),
    (tell_what_ended_within, BROKEN),
    (begin_after_an_unknown_end, BROKEN),
    (commit_before_all_is_stored, BROKEN),
)
"""All of the suite's."""

"""Whose request it is: the identity in it compared with those that the id has or had. Pure.

Owns the one place where identities are compared. It must never let an identity other than the
current one change anything: a request that was delayed carries the identity of the transaction that
it meant, and that transaction is over.
"""

import enum

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.records import TransactionValue
from tidelog.broker.transactions.state.refusals import aborted, fenced
from tidelog.broker.transactions.state.states import Decision, Succession
from tidelog.broker.transactions.state.transaction import Transaction
from tidelog.wire.errors import TidelogError


class Standing(enum.Enum):
    """What an identity is to a transactional id."""

    CURRENT = "current"
    """It works with it now; no decision is being completed."""
    COMING = "coming"
    """It works with it as soon as the decision is complete."""
    LAST = "last"
    """The one before: the sender has not heard of the end, or must not work any more."""
    OTHER = "other"
    """An older one, or one that never was."""


def standing(value: TransactionValue, identity: Identity) -> Standing:
    """Returns what the identity is to the id."""
    # Compared with the successor, not with the one on the markers: after a rotation the answer of
    # the end has told the new producer id, which the markers do not carry.
    if identity == value.successor:
        return Standing.COMING if value.is_ending else Standing.CURRENT
    return Standing.LAST if identity == value.last else Standing.OTHER


def known(transaction: Transaction | None, tried: str) -> Transaction:
    """Returns the transaction; an id of which nothing is known has no identity that may work."""
    if transaction is None:
        raise fenced(tried, "the transactional id is not known: nobody took it over, or it expired")
    return transaction


def refuse_former(value: TransactionValue, identity: Identity, tried: str) -> TidelogError:
    """Returns what is said to an identity that does not work any more."""
    if identity == value.last and value.succession in (Succession.TIMED_OUT, Succession.OPERATOR):
        # Not fenced: nobody else has the id. Its holder may go on with a new epoch.
        return aborted(tried, _why_aborted(value))
    # The identity that works now is not named: whoever has it may write.
    return fenced(tried, f"identity {identity} is over: the transactional id has another one")


def _why_aborted(value: TransactionValue) -> str:
    if value.succession is Succession.TIMED_OUT:
        return f"it took longer than its timeout of {value.timeout_ms:,} ms, and was aborted"
    return "an operator aborted it"


def was_decided(value: TransactionValue) -> Decision | None:
    """Returns what the holder of the last identity has decided, until the next transaction begins.

    None: somebody else has ended it, or a later one is in progress.
    """
    if not (value.is_idle or value.is_ending):
        return None
    match value.succession:
        case Succession.COMMITTED:
            return Decision.COMMIT
        case Succession.ABORTED:
            return Decision.ABORT
        case _:
            return None

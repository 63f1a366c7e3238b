"""Commits in two phases, with a database or a table format as the other half. Pure.

Owns what a token does. A prepared transaction has no timeout and survives its producer: only a
decision by its token, or an operator's abort, ends it. It must never be ended by anything else: the
other half may have stored the token, and counts on the outcome being its own to choose.
"""

from msgspec.structs import replace

from tidelog.broker.transactions.core.ending import decide
from tidelog.broker.transactions.core.identities import (
    Standing,
    known,
    refuse_former,
    standing,
    was_decided,
)
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import DecideAnswer, PrepareAnswer
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import DecidePrepared, PrepareTransaction
from tidelog.broker.transactions.state.records import DecidedToken, TransactionValue
from tidelog.broker.transactions.state.refusals import (
    aborted,
    check_id,
    check_identity,
    concurrent,
    exhausted,
    invalid,
    not_found,
    wrong_state,
)
from tidelog.broker.transactions.state.states import SUCCESSION_OF, Decision, TransactionState
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.errors import TidelogError


def on_prepare(
    world: TransactionWorld, draft: TransactionDraft, request: PrepareTransaction
) -> PrepareAnswer:
    """Takes the first half; a repetition changes nothing."""
    tried = f"prepare transaction `{request.transactional_id}`"
    check_id(tried, request.transactional_id)
    check_identity(tried, request.identity)
    if not request.principal:
        raise invalid(tried, "it is not said who asks")
    transaction = known(draft.transaction, tried)
    value = transaction.value
    match standing(value, request.identity):
        case Standing.CURRENT if value.state is TransactionState.PREPARED:
            return PrepareAnswer()
        case Standing.CURRENT:
            pass
        case Standing.COMING:
            raise concurrent(tried, "the transaction before it is still being completed")
        case Standing.LAST if (decision := was_decided(value)) is not None:
            raise wrong_state(tried, f"{decision.name.lower()} was decided before")
        case _:
            raise refuse_former(value, request.identity, tried)
    _check_room(world, request.principal, tried)
    draft.put(
        replace(
            value,
            state=TransactionState.PREPARED,
            started_ms=world.wall_ms if value.is_idle else value.started_ms,
            updated_ms=world.stamp_ms,
            principal=request.principal,
        )
    )
    # Its timeout ended with the state before it; what comes is a notice, not an abort.
    world.timers.set(transaction, world.now_ms + limits.PREPARED_NOTICE_MS)
    return PrepareAnswer()


def _check_room(world: TransactionWorld, principal: str, tried: str) -> None:
    hint = "Decide those that stand; `tidelog txn list` shows them."
    own = world.transactions.prepared
    of_principal = sum(1 for each in own.values() if each == principal)
    of_principal += world.prepared_elsewhere.get(principal, 0)
    if of_principal >= limits.PREPARED_PER_PRINCIPAL_MAX:
        raise exhausted(
            tried,
            f"{of_principal} transactions of `{principal}` are prepared",
            "PREPARED_PER_PRINCIPAL_MAX",
            limits.PREPARED_PER_PRINCIPAL_MAX,
            hint,
        )
    of_all = len(own) + sum(world.prepared_elsewhere.values())
    if of_all >= limits.PREPARED_PER_CLUSTER_MAX:
        raise exhausted(
            tried,
            f"{of_all} transactions are prepared",
            "PREPARED_PER_CLUSTER_MAX",
            limits.PREPARED_PER_CLUSTER_MAX,
            hint,
        )


def on_decide(
    world: TransactionWorld, draft: TransactionDraft, request: DecidePrepared
) -> DecideAnswer:
    """Takes the second half; deciding the same again changes nothing."""
    tried = f"{request.decision.name.lower()} prepared transaction `{request.transactional_id}`"
    check_id(tried, request.transactional_id)
    check_identity(tried, request.identity)
    transaction = draft.transaction
    if transaction is None:
        raise not_found(tried, "the transactional id is not known")
    value = transaction.value
    if value.decided is not None and request.identity == value.decided.identity:
        return _repeated(value.decided, request.decision, tried)
    if value.state is TransactionState.PREPARED and request.identity == value.current:
        decide(world, draft, request.decision, SUCCESSION_OF[request.decision])
        return DecideAnswer()
    raise _why_not(value, request, tried)


def _repeated(decided: DecidedToken, decision: Decision, tried: str) -> DecideAnswer:
    if decided.decision is decision:
        return DecideAnswer()
    if decided.is_by_operator:
        raise aborted(tried, "an operator aborted it")
    raise wrong_state(
        tried,
        f"{decided.decision.name.lower()} was decided before",
        "Bring the other half to the decision that was taken.",
    )


def _why_not(value: TransactionValue, request: DecidePrepared, tried: str) -> TidelogError:
    if request.identity in (value.current, value.last):
        return wrong_state(
            tried, "it was not prepared", "End it by EndTransaction, under its own identity."
        )
    return not_found(
        tried,
        f"no prepared transaction has identity {request.identity}; one that was decided is "
        "remembered until the next prepared one is decided",
        "Check the token with `tidelog txn list`.",
    )

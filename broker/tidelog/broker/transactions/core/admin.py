"""Transactions as operators see and abort them. Pure."""

from tidelog.broker.transactions.core.ending import decide
from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    DescribeTransactionAnswer,
    ListTransactionsAnswer,
    TransactionListing,
)
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import AbortTransaction, DescribeTransaction
from tidelog.broker.transactions.state.notes import NoteKind
from tidelog.broker.transactions.state.refusals import check_id, not_found
from tidelog.broker.transactions.state.states import Decision, Succession
from tidelog.broker.transactions.state.transaction import Transaction
from tidelog.broker.transactions.state.world import TransactionWorld


def list_transactions(world: TransactionWorld) -> ListTransactionsAnswer:
    """Tells all ids, in ascending order."""
    return ListTransactionsAnswer(
        transactions=tuple(
            _listing(world, world.transactions.by_id[name])
            for name in sorted(world.transactions.by_id)
        )
    )


def _listing(world: TransactionWorld, transaction: Transaction) -> TransactionListing:
    value = transaction.value
    age_ms = -1 if value.is_idle else max(0, world.wall_ms - value.started_ms)
    return TransactionListing(
        transactional_id=transaction.transactional_id,
        identity=value.current,
        state=value.state,
        age_ms=age_ms,
    )


def on_describe(draft: TransactionDraft, request: DescribeTransaction) -> DescribeTransactionAnswer:
    """Tells what it touches and what it waits for."""
    tried = f"describe transaction `{request.transactional_id}`"
    transaction = _found(draft, tried)
    value = transaction.value
    waits_for = transaction.keys if value.is_ending else {}
    if transaction.markers is not None:
        waits_for = transaction.markers.waiting
    return DescribeTransactionAnswer(
        transactional_id=transaction.transactional_id,
        identity=value.current,
        state=value.state,
        started_ms=value.started_ms,
        timeout_ms=value.timeout_ms,
        keys=tuple(sorted(transaction.keys)),
        waits_for=tuple(sorted(waits_for)),
        principal=value.principal,
    )


def on_abort(
    world: TransactionWorld, draft: TransactionDraft, request: AbortTransaction
) -> AbortAnswer:
    """Aborts what is in progress, also what is prepared; never what is decided."""
    tried = f"abort transaction `{request.transactional_id}`"
    value = _found(draft, tried).value
    if value.is_idle or value.is_ending:
        return AbortAnswer(was_aborted=False)
    if not request.validate_only:
        decide(world, draft, Decision.ABORT, Succession.OPERATOR)
        world.notes.add(draft.transactional_id, NoteKind.ABORTED_BY_OPERATOR)
    return AbortAnswer(was_aborted=True)


def _found(draft: TransactionDraft, tried: str) -> Transaction:
    check_id(tried, draft.transactional_id)
    transaction = draft.transaction
    if transaction is None:
        raise not_found(tried, "the transactional id is not known")
    return transaction

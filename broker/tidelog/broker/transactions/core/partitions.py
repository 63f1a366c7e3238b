"""What a transaction touches: added durably before the first byte is accepted. Pure.

Owns the answer to a leader that asks. It must never say yes before the partition is in a committed
record of the open transaction: data that no record names would get no marker, and readers of
committed records would stand still behind it for ever.
"""

from msgspec.structs import replace

from tidelog.broker.transactions.core.identities import Standing, known, refuse_former, standing
from tidelog.broker.transactions.state import limits
from tidelog.broker.transactions.state.answers import AddPartitionsAnswer
from tidelog.broker.transactions.state.draft import TransactionDraft
from tidelog.broker.transactions.state.messages import AddPartitions
from tidelog.broker.transactions.state.refusals import (
    check_id,
    check_identity,
    concurrent,
    exhausted,
    invalid,
    prepared,
    wrong_state,
)
from tidelog.broker.transactions.state.states import TransactionState
from tidelog.broker.transactions.state.transaction import Transaction, touched_topics
from tidelog.broker.transactions.state.world import TransactionWorld
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey


def on_add(
    world: TransactionWorld, draft: TransactionDraft, request: AddPartitions
) -> AddPartitionsAnswer:
    """Says that the partitions are part of the open transaction, and makes it so."""
    tried = f"add partitions to transaction `{request.transactional_id}`"
    _check_request(request, tried)
    transaction = known(draft.transaction, tried)
    value = transaction.value
    if value.is_ending:
        # Before identities are compared: after a rotation the producer has its new id already, and
        # would be told that it is a zombie.
        raise concurrent(tried, "the transaction before it is still being completed")
    if standing(value, request.identity) is not Standing.CURRENT:
        raise refuse_former(value, request.identity, tried)
    if value.state is TransactionState.PREPARED:
        raise prepared(tried, value.current)
    missing = [key for key in request.keys if key not in transaction.keys]
    if not missing:
        return AddPartitionsAnswer()
    if request.verify_only:
        raise wrong_state(tried, f"{len(missing):,} of them are not part of it")
    _check_room(world, transaction, missing, tried)
    _write(world, draft, transaction, missing)
    return AddPartitionsAnswer()


def _check_request(request: AddPartitions, tried: str) -> None:
    check_id(tried, request.transactional_id)
    check_identity(tried, request.identity)
    if not request.keys:
        raise invalid(tried, "no partition is named")
    if len(request.keys) > limits.PARTITIONS_PER_REQUEST_MAX:
        raise invalid(
            tried,
            f"{len(request.keys):,} partitions are named; at most "
            f"{limits.PARTITIONS_PER_REQUEST_MAX:,} may be (PARTITIONS_PER_REQUEST_MAX)",
        )


def _check_room(
    world: TransactionWorld, transaction: Transaction, missing: list[PartitionKey], tried: str
) -> None:
    for key in missing:
        # A partition is only added while this coordinator's metadata know it. So when they know it
        # no more it was deleted, and its marker is not waited for.
        count = world.partition_counts.get(key.topic_id)
        if count is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                tried=tried,
                happened=f"the coordinator's metadata have no topic of {key}",
            )
        if not 0 <= key.partition < count:
            raise TidelogError(
                ErrorCode.UNKNOWN_PARTITION,
                tried=tried,
                happened=f"in the coordinator's metadata the topic of {key} has {count:,} "
                "partitions",
            )
    if len({**transaction.keys, **dict.fromkeys(missing)}) > limits.PARTITIONS_PER_TRANSACTION_MAX:
        raise exhausted(
            tried,
            "it would touch too many partitions",
            "PARTITIONS_PER_TRANSACTION_MAX",
            limits.PARTITIONS_PER_TRANSACTION_MAX,
            "Abort it, and write to fewer partitions in one transaction.",
        )


def _write(
    world: TransactionWorld,
    draft: TransactionDraft,
    transaction: Transaction,
    missing: list[PartitionKey],
) -> None:
    value = transaction.value
    begins = value.is_idle
    draft.put(
        replace(
            value,
            state=TransactionState.ONGOING,
            started_ms=world.wall_ms if begins else value.started_ms,
            updated_ms=world.stamp_ms,
            topics=touched_topics((*transaction.keys, *dict.fromkeys(missing))),
        )
    )
    if begins:
        # From the first record on, whichever way it came: a transaction without a deadline whose
        # producer dies would hold readers for ever.
        world.timers.set(transaction, world.now_ms + value.timeout_ms)

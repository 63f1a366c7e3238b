"""What the admin client asks about transactions, and when once more: the same for both drivers.

Owns pages, and what makes a transaction a hanging one. It must never wait nor call anybody: a
driver performs each step.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from tidelog.client.engine.cluster.metadata import MetadataCache
from tidelog.client.engine.group.admin_calls import Outcomes
from tidelog.client.shared.group_plans import Plan
from tidelog.client.types.records import TopicPartition
from tidelog.client.types.transactions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionList,
    TransactionListing,
    TransactionState,
)
from tidelog.client.wire import transactions_admin as wire
from tidelog.wire.errors import ErrorCode, TidelogError

Decision = Literal["commit", "abort"]
HANGING_AFTER_MS: Final = 15 * 60 * 1000
"""The longest timeout that a cluster allows by default."""
IN_PROGRESS: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARED,
    TransactionState.COMMITTING,
    TransactionState.ABORTING,
)

Producers = Mapping[TopicPartition, Sequence[ProducerDescription]]


class TransactionPages:
    """Transactional ids, page by page."""

    def __init__(self, states: Iterable[TransactionState], min_age_ms: int, limit_ms: int) -> None:
        self._states, self._min_age_ms = list(states), min_age_ms
        self._deadline = time.monotonic() + limit_ms / 1000
        self._transactions: list[TransactionListing] = []
        self._missing = 0
        self._after_id = ""
        self.is_complete = False

    def next_request(self) -> bytes:
        """The page behind the last one."""
        return wire.list_transactions_request(
            self._states, self._min_age_ms, after_id=self._after_id
        )

    @property
    def left_ms(self) -> int:
        """How long the next page may take."""
        return max(1, int((self._deadline - time.monotonic()) * 1000))

    def take(self, data: bytes) -> None:
        """A page."""
        page, self._after_id = wire.read_transactions(data)
        self._transactions += page.transactions
        self._missing = max(self._missing, page.missing_coordinators)
        self.is_complete = not self._after_id

    def all(self) -> TransactionList:
        """Those of all pages."""
        return TransactionList(
            transactions=tuple(self._transactions), missing_coordinators=self._missing
        )


def check_complete(found: TransactionList) -> None:
    """Raises if ids are missing: without them a list would look as if they were not there."""
    if found.missing_coordinators:
        raise TidelogError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            tried="list transactions",
            happened=f"{found.missing_coordinators} coordinators could not be asked; the others "
            f"have {len(found.transactions)} transactional ids",
            hint="try again, or take what there is with try_list_transactions",
        )


def describe(
    outcomes: Outcomes[TransactionDescription], names: Mapping[bytes, str]
) -> Plan[TransactionDescription]:
    """`names`: of topics, by id."""
    return Plan(
        "describe transactions",
        wire.DESCRIBE_TRANSACTIONS,
        outcomes,
        wire.describe_transactions_request,
        lambda data: wire.read_descriptions(data, names),
    )


def abort(transactional_id: str, *, validate_only: bool) -> Plan[bool]:
    """One id. Asked again after a lost answer, a coordinator would deny what it did the first time:
    then nothing is in progress any more."""
    request = wire.abort_transaction_request(transactional_id, validate_only=validate_only)
    return Plan(
        f"abort transaction {transactional_id}",
        wire.ABORT_TRANSACTION,
        Outcomes[bool]([transactional_id], may_repeat=False),
        lambda _: request,
        wire.read_aborted,
        validate_only=validate_only,
    )


def check_prepared(found: TransactionDescription) -> None:
    """Raises unless the transaction waits for a decision."""
    if found.state is not TransactionState.PREPARED:
        raise TidelogError(
            ErrorCode.INVALID_TRANSACTION_STATE,
            tried=f"decide the prepared transaction of {found.transactional_id}",
            happened=f"it is not prepared: its state is {found.state.value}",
            hint="describe_transactions() tells in what state it is",
        )


def every_partition(metadata: MetadataCache) -> list[TopicPartition]:
    """Those of all topics that are known, in order."""
    return sorted(
        TopicPartition(topic.name, number)
        for topic in metadata.topics.values()
        for number in range(len(topic.partitions))
    )


def first_passing_error(results: Iterable[object]) -> TidelogError | None:
    """The first error after which the same may be asked again."""
    return next(
        (each for each in results if isinstance(each, TidelogError) and each.retriable), None
    )


def suspects(found: Producers, older_than_ms: int) -> list[HangingTransaction]:
    """Open transactions whose last batch is older than that, in order of partition and offset."""
    latest_ms = int(time.time() * 1000) - older_than_ms
    return [
        HangingTransaction(
            partition=name,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transaction_start_offset=each.transaction_start_offset,
            last_timestamp_ms=each.last_timestamp_ms,
        )
        for name in sorted(found)
        for each in sorted(found[name], key=lambda each: each.transaction_start_offset or 0)
        if each.transaction_start_offset is not None and each.last_timestamp_ms <= latest_ms
    ]


def nobodys(
    found: Iterable[HangingTransaction], in_progress: Iterable[TransactionListing]
) -> list[HangingTransaction]:
    """Those of producers that no coordinator has in progress.

    The coordinators are asked after the partitions: one that begins a transaction stores it before
    a partition takes its first record.
    """
    known = {each.producer_id for each in in_progress}
    return [each for each in found if each.producer_id not in known]


def still_open(
    found: Iterable[HangingTransaction], producers: Producers
) -> list[HangingTransaction]:
    """Those that did not end while the coordinators were asked."""
    places = {
        (name, each.producer_id, each.transaction_start_offset)
        for name, described in producers.items()
        for each in described
    }
    return [
        each
        for each in found
        if (each.partition, each.producer_id, each.transaction_start_offset) in places
    ]

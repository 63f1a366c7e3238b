"""Calls of operators for what this broker coordinates and leads: protobuf and the cores' requests.

Owns how each call becomes requests to coordinators, one a transactional id, and to leaders, and how
their answers become the contract's. The same for a call made here and for one that came to another
broker.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from tidelog.broker.services.transactions.admin.partitions import OwnProducers
from tidelog.broker.transactions.state.answers import (
    AbortAnswer,
    DescribeTransactionAnswer,
    Identity,
    ListTransactionsAnswer,
    Response,
    TransactionListing,
)
from tidelog.broker.transactions.state.messages import (
    AbortTransaction,
    AnyRequest,
    DescribeTransaction,
    ListTransactions,
)
from tidelog.contract.errors import fill_error
from tidelog.contract.partitions import by_topic, validate_partition
from tidelog.ports import TaskScope
from tidelog.v1 import errors_pb2, transaction_admin_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionId

LISTED_MAX: Final = 10_000
RETRY_AFTER_MS: Final = 200
"""After so long a coordinator that is loading is asked again."""
AnswerT = TypeVar("AnswerT")
T = TypeVar("T")


class OneCoordinator(Protocol):
    """The coordinator of one partition of `__transactions`."""

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition."""
        ...

    async def ask(self, request: AnyRequest) -> Response:
        """Returns the core's answer once it may be shown; raises what refuses the request."""
        ...


class OwnCoordinators(Protocol):
    """Those of this broker."""

    @property
    def by_partition(self) -> Mapping[PartitionId, OneCoordinator]:
        """Those of every partition that this broker has led."""
        ...

    def of(self, transactional_id: str) -> OneCoordinator:
        """Returns the one that has the id; NOT_COORDINATOR if that is another broker's."""
        ...


class TransactionCalls:
    """One method for every kind of call."""

    def __init__(
        self, coordinators: OwnCoordinators, producers: OwnProducers, *, broker_id: BrokerId
    ) -> None:
        self._coordinators = coordinators
        self._producers = producers
        self._broker_id = broker_id

    async def list_transactions(
        self, asked: transaction_admin_pb2.ListTransactionsRequest
    ) -> transaction_admin_pb2.ListTransactionsResponse:
        """Lists one page of the ids that this broker coordinates, and which coordinators answered:
        the caller knows which there are."""
        response = transaction_admin_pb2.ListTransactionsResponse()
        found: list[TransactionListing] = []

        async def ask(of: tuple[PartitionId, OneCoordinator]) -> None:
            partition, coordinator = of
            try:
                answer = await _ask(coordinator, ListTransactions(), ListTransactionsAnswer)
            except TidelogError:
                return
            response.answered_coordinators.append(partition)
            found.extend(each for each in answer.transactions if _is_listed(each, asked))

        led = [each for each in self._coordinators.by_partition.items() if each[1].is_led]
        await _all_at_once(ask, led)
        found.sort(key=lambda each: each.transactional_id)
        return page(response, [_listing_message(each) for each in found], most_of(asked))

    async def describe_transactions(
        self, asked: transaction_admin_pb2.DescribeTransactionsRequest
    ) -> transaction_admin_pb2.DescribeTransactionsResponse:
        """Describes ids that this broker coordinates."""
        response = transaction_admin_pb2.DescribeTransactionsResponse()

        async def ask(message: transaction_admin_pb2.TransactionDescription) -> None:
            name = message.transactional_id
            try:
                coordinator = self._coordinators.of(name)
                request = DescribeTransaction(transactional_id=name)
                found = await _ask(coordinator, request, DescribeTransactionAnswer)
            except TidelogError as error:
                fill_transaction_error(message.error, error)
                return
            _fill_description(message, found)

        for name in asked.transactional_ids:
            response.transactions.add(transactional_id=name, coordinator_id=self._broker_id)
        await _all_at_once(ask, response.transactions)
        return response

    async def abort_transaction(
        self, asked: transaction_admin_pb2.AbortTransactionRequest
    ) -> transaction_admin_pb2.AbortTransactionResponse:
        """Aborts what is in progress under an id that this broker coordinates."""
        request = AbortTransaction(
            transactional_id=asked.transactional_id, validate_only=asked.validate_only
        )
        coordinator = self._coordinators.of(asked.transactional_id)
        found = await _ask(coordinator, request, AbortAnswer)
        return transaction_admin_pb2.AbortTransactionResponse(was_aborted=found.was_aborted)

    async def describe_producers(
        self, asked: transaction_admin_pb2.DescribeProducersRequest
    ) -> transaction_admin_pb2.DescribeProducersResponse:
        """Describes the producers of partitions that this broker leads."""
        response = transaction_admin_pb2.DescribeProducersResponse()

        async def ask(message: transaction_admin_pb2.PartitionProducers) -> None:
            named = message.partition
            try:
                key = validate_partition(
                    named.topic_id, named.partition, tried="describe producers"
                )
                found = await self._producers.describe_producers(key)
            except TidelogError as error:
                fill_error(message.error, error)
                return
            for each in found:
                message.producers.add(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp_ms=each.last_timestamp_ms,
                    transaction_start_offset=each.transaction_start_offset,
                    coordinator_epoch=each.coordinator_epoch,
                )

        for partition in asked.partitions:
            response.partitions.add(partition=partition)
        await _all_at_once(ask, response.partitions)
        return response

    async def abort_hanging(
        self, asked: transaction_admin_pb2.AbortHangingTransactionRequest
    ) -> transaction_admin_pb2.AbortHangingTransactionResponse:
        """Ends a transaction on a partition that this broker leads; every coordinator was asked."""
        named = asked.partition
        key = validate_partition(
            named.topic_id, named.partition, tried="abort a hanging transaction"
        )
        await self._producers.abort_hanging(
            key,
            asked.producer_id,
            asked.transaction_start_offset,
            validate_only=asked.validate_only,
        )
        return transaction_admin_pb2.AbortHangingTransactionResponse()


def fill_transaction_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """Writes an error of a coordinator, with when to ask again."""
    fill_error(message, error)
    if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        message.retry_after_ms = RETRY_AFTER_MS


def most_of(asked: transaction_admin_pb2.ListTransactionsRequest) -> int:
    """Returns how many transactions one page may have."""
    return min(asked.max_transactions or LISTED_MAX, LISTED_MAX)


def page(
    response: transaction_admin_pb2.ListTransactionsResponse,
    transactions: Sequence[transaction_admin_pb2.TransactionListing],
    most: int,
) -> transaction_admin_pb2.ListTransactionsResponse:
    """Fills in as many of the transactions as fit, and where the next page begins."""
    response.transactions.extend(transactions[:most])
    if len(transactions) > most:
        response.next_after_id = transactions[most - 1].transactional_id
    return response


async def _all_at_once(
    ask: Callable[[T], Coroutine[object, object, None]], of: Iterable[T]
) -> None:
    """Each of them may wait: one that does not know whether it still leads takes a second."""
    async with TaskScope() as scope:
        for each in of:
            scope.start(ask(each), name="ask a coordinator or a leader")


async def _ask(coordinator: OneCoordinator, request: AnyRequest, kind: type[AnswerT]) -> AnswerT:
    answer = await coordinator.ask(request)
    assert isinstance(answer, kind), f"{type(request).__name__} is answered by {kind.__name__}"
    return answer


def _is_listed(
    listing: TransactionListing, asked: transaction_admin_pb2.ListTransactionsRequest
) -> bool:
    is_state = not asked.states or int(listing.state) in asked.states
    is_old = not asked.min_age_ms or listing.age_ms > asked.min_age_ms
    return is_state and is_old and listing.transactional_id > asked.after_id


def _identity_message(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _listing_message(listing: TransactionListing) -> transaction_admin_pb2.TransactionListing:
    return transaction_admin_pb2.TransactionListing(
        transactional_id=listing.transactional_id,
        identity=_identity_message(listing.identity),
        state=transaction_admin_pb2.TransactionState.ValueType(listing.state),
        age_ms=listing.age_ms,
    )


def _fill_description(
    message: transaction_admin_pb2.TransactionDescription, found: DescribeTransactionAnswer
) -> None:
    message.identity.CopyFrom(_identity_message(found.identity))
    message.state = transaction_admin_pb2.TransactionState.ValueType(found.state)
    message.start_time_ms = found.started_ms
    message.timeout_ms = found.timeout_ms
    message.topics.extend(by_topic(found.keys))
    message.waits_for.extend(by_topic(found.waits_for))
    message.principal = found.principal

"""TransactionAdminService, on every broker: who is asked, and how the answers become one.

Owns the split of a request by coordinator and by leader. A broker that does not answer within its
deadline is told of in its part of the answer. It must never have a transaction aborted at a
partition alone while a coordinator may know of it: the coordinator would go on to commit what
readers have seen aborted.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from tidelog.broker.groups.coordinator.leader_offsets import leader_of
from tidelog.broker.services.transactions.admin.calls import (
    LISTED_MAX,
    fill_transaction_error,
    most_of,
    page,
)
from tidelog.broker.services.transactions.admin.methods import (
    ABORT_HANGING,
    ABORT_TRANSACTION,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    AnswerT,
    AskedT,
    TransactionMethod,
)
from tidelog.broker.services.transactions.admin.peers import OperatorPeers
from tidelog.broker.transactions.state.refusals import check_id
from tidelog.broker.transactions.state.states import IDLE, TransactionState
from tidelog.contract.errors import fill_error
from tidelog.contract.partitions import refuse_twice, validate_partition
from tidelog.metadata.image.image import NO_LEADER, Image, TopicImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import RequestContext, TaskScope, UnaryHandler
from tidelog.v1 import transaction_admin_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId, PartitionKey
from tidelog.wire.refusals import invalid

DESCRIBED_MAX: Final = 1_000
"""Transactional ids, or partitions, of one request."""
_STATES: Final = frozenset(map(int, TransactionState))
_IN_PROGRESS: Final = tuple(
    transaction_admin_pb2.TransactionState.ValueType(each)
    for each in TransactionState
    if each not in IDLE
)
NameT = TypeVar("NameT")


class FoundPlace(Protocol):
    """Where one coordinator is."""

    @property
    def broker_id(self) -> BrokerId:
        """The broker that coordinates."""
        ...


class TransactionKind(Protocol):
    """The rule by which transactional ids have coordinators."""

    def check_on(self, image: Image, *, tried: str) -> None:
        """Refuses while the cluster runs without transactions."""
        ...

    def topic_in(self, image: Image) -> TopicImage | None:
        """Returns the topic of the coordinators; None: nobody has asked for one yet."""
        ...

    def place_of(self, name: str, image: Image, listener: str) -> FoundPlace:
        """Returns who coordinates the id; raises COORDINATOR_NOT_AVAILABLE."""
        ...


class TransactionAdminRpc:
    """The service's five methods."""

    def __init__(
        self,
        peers: OperatorPeers,
        kind: TransactionKind,
        metadata: ImageSource,
        confirm: Callable[[str], Awaitable[None]],
    ) -> None:
        self._peers = peers
        self._kind = kind
        self._metadata = metadata
        self._confirm = confirm
        """Returns once this broker acts on all metadata that are committed by now."""

    def table(self) -> dict[str, UnaryHandler]:
        """By full name."""
        return {
            LIST_TRANSACTIONS.name: self.list_transactions,
            DESCRIBE_TRANSACTIONS.name: self.describe_transactions,
            ABORT_TRANSACTION.name: self.abort_transaction,
            DESCRIBE_PRODUCERS.name: self.describe_producers,
            ABORT_HANGING.name: self.abort_hanging_transaction,
        }

    # -- transactional ids -----------------------------------------------------------------------

    async def list_transactions(self, context: RequestContext, message: bytes) -> bytes:
        """`ListTransactions`."""
        del context
        asked = transaction_admin_pb2.ListTransactionsRequest.FromString(message)
        tried = "list transactions"
        self._kind.check_on(self._metadata.image(), tried=tried)
        for state in asked.states:
            if state not in _STATES:
                raise invalid(tried, f"there is no state number {state}")
        response = await self._list(asked)
        return response.SerializeToString()

    async def _list(
        self, asked: transaction_admin_pb2.ListTransactionsRequest
    ) -> transaction_admin_pb2.ListTransactionsResponse:
        """One page of all coordinators' ids.

        Each broker is asked for a whole page of its own: whatever belongs to the first ids of all
        is among the first of its broker.
        """
        image = self._metadata.image()
        topic = self._kind.topic_in(image)
        partitions = () if topic is None else topic.partitions
        answered: set[int] = set()
        found: dict[str, transaction_admin_pb2.TransactionListing] = {}

        async def ask(broker_id: BrokerId) -> None:
            try:
                answer = await self._ask(broker_id, LIST_TRANSACTIONS, asked, image)
            except TidelogError:
                return
            answered.update(answer.answered_coordinators)
            # An id whose coordinator has just moved may be told by both.
            found.update((each.transactional_id, each) for each in answer.transactions)

        leaders = {each.leader_id for each in partitions} - {NO_LEADER}
        async with TaskScope() as scope:
            for broker_id in sorted(leaders):
                scope.start(ask(broker_id), name="list transactions")
        # A broker that does not know yet that it leads a partition, or leads it no more, answers
        # all the same: only the coordinators themselves can say that nothing is missing.
        response = transaction_admin_pb2.ListTransactionsResponse(
            missing_coordinators=sum(each.partition not in answered for each in partitions),
            answered_coordinators=sorted(answered),
        )
        return page(response, [found[name] for name in sorted(found)], most_of(asked))

    async def describe_transactions(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeTransactions`."""
        asked = transaction_admin_pb2.DescribeTransactionsRequest.FromString(message)
        tried = "describe transactions"
        names = list(asked.transactional_ids)
        _refuse_too_many(len(names), "transactional ids", tried)
        if len(dict.fromkeys(names)) < len(names):
            raise invalid(tried, "the request names an id twice", "Name each id once.")
        for name in names:
            check_id(tried, name)
        image = self._metadata.image()
        self._kind.check_on(image, tried=tried)
        described: dict[str, transaction_admin_pb2.TransactionDescription] = {}

        async def ask(broker_id: BrokerId, part: Sequence[str]) -> None:
            call = transaction_admin_pb2.DescribeTransactionsRequest(transactional_ids=part)
            answer = await self._ask(broker_id, DESCRIBE_TRANSACTIONS, call, image)
            described.update((each.transactional_id, each) for each in answer.transactions)

        failures = await _ask_each(
            names, lambda name: self._coordinator_of(name, image, context.listener, tried), ask
        )
        response = transaction_admin_pb2.DescribeTransactionsResponse()
        for name in names:
            if name in described:
                response.transactions.append(described[name])
            else:
                each = response.transactions.add(transactional_id=name, coordinator_id=NO_LEADER)
                fill_transaction_error(each.error, failures.get(name) or _unanswered(name))
        return response.SerializeToString()

    async def abort_transaction(self, context: RequestContext, message: bytes) -> bytes:
        """`AbortTransaction`."""
        asked = transaction_admin_pb2.AbortTransactionRequest.FromString(message)
        name, image = asked.transactional_id, self._metadata.image()
        tried = f"abort transaction `{name}`"
        check_id("abort a transaction", name)
        self._kind.check_on(image, tried=tried)
        broker_id = self._coordinator_of(name, image, context.listener, tried)
        answer = await self._ask(broker_id, ABORT_TRANSACTION, asked, image)
        return answer.SerializeToString()

    # -- producers of partitions -----------------------------------------------------------------

    async def describe_producers(self, context: RequestContext, message: bytes) -> bytes:
        """`DescribeProducers`."""
        del context
        asked = transaction_admin_pb2.DescribeProducersRequest.FromString(message)
        tried = "describe producers"
        _refuse_too_many(len(asked.partitions), "partitions", tried)
        keys = [
            validate_partition(each.topic_id, each.partition, tried=tried)
            for each in asked.partitions
        ]
        refuse_twice(keys, tried=tried)
        image = self._metadata.image()
        described: dict[PartitionKey, transaction_admin_pb2.PartitionProducers] = {}

        async def ask(broker_id: BrokerId, part: Sequence[PartitionKey]) -> None:
            call = transaction_admin_pb2.DescribeProducersRequest()
            for key in part:
                call.partitions.add(topic_id=key.topic_id, partition=key.partition)
            answer = await self._ask(broker_id, DESCRIBE_PRODUCERS, call, image)
            described.update(zip(part, answer.partitions, strict=True))

        failures = await _ask_each(keys, lambda key: _leader(image, key), ask)
        response = transaction_admin_pb2.DescribeProducersResponse()
        for key in keys:
            if key in described:
                response.partitions.append(described[key])
            else:
                each = response.partitions.add()
                each.partition.topic_id, each.partition.partition = key.topic_id, key.partition
                fill_error(each.error, failures[key])
        return response.SerializeToString()

    async def abort_hanging_transaction(self, context: RequestContext, message: bytes) -> bytes:
        """`AbortHangingTransaction`."""
        del context
        asked = transaction_admin_pb2.AbortHangingTransactionRequest.FromString(message)
        tried = f"abort a hanging transaction of producer {asked.producer_id}"
        named = asked.partition
        key = validate_partition(named.topic_id, named.partition, tried=tried)
        if asked.producer_id < 0 or asked.transaction_start_offset < 0:
            raise invalid(tried, "a producer id and an offset are 0 or above")
        image = self._metadata.image()
        broker_id = _leader(image, key)
        self._kind.check_on(image, tried=tried)
        await self._check_hanging(asked.producer_id, tried)
        answer = await self._ask(broker_id, ABORT_HANGING, asked, image)
        return answer.SerializeToString()

    async def _check_hanging(self, producer_id: int, tried: str) -> None:
        """Refuses unless every coordinator says that it has nothing of the producer in progress.

        A coordinator stores that a transaction has begun before the partition takes its first
        record. So an open transaction that no coordinator knows, asked after it was seen open, is
        one that they have forgotten or finished, and none of them will ever end it. That is true of
        the coordinators of now: one that was replaced does not know what its successor has begun,
        so the quorum is asked first who they are.
        """
        await self._confirm(tried)
        asked = transaction_admin_pb2.ListTransactionsRequest(
            states=_IN_PROGRESS, max_transactions=LISTED_MAX
        )
        while True:
            found = await self._list(asked)
            if found.missing_coordinators:
                raise TidelogError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    tried=tried,
                    happened=f"{found.missing_coordinators} coordinators of transactions could not "
                    "be asked, and one of them may still end it",
                )
            for each in found.transactions:
                if each.identity.producer_id == producer_id:
                    raise TidelogError(
                        ErrorCode.INVALID_TRANSACTION_STATE,
                        tried=tried,
                        happened="it does not hang: it is the transaction in progress of "
                        f"`{each.transactional_id}`",
                        hint="Abort that transaction: its markers reach this partition too.",
                    )
            if not found.next_after_id:
                return
            asked.after_id = found.next_after_id

    # -- who is asked ----------------------------------------------------------------------------

    async def _ask(
        self,
        broker_id: BrokerId,
        method: TransactionMethod[AskedT, AnswerT],
        asked: AskedT,
        image: Image,
    ) -> AnswerT:
        return await self._peers.ask(broker_id, method, asked, version=image.version)

    def _coordinator_of(self, name: str, image: Image, listener: str, tried: str) -> BrokerId:
        if self._kind.topic_in(image) is None:
            # Nobody was ever given a coordinator, so there is nothing that one could know of.
            raise TidelogError(
                ErrorCode.TRANSACTION_NOT_FOUND,
                tried=tried,
                happened=f"no transactional id was ever used here, `{name}` neither",
            )
        return self._kind.place_of(name, image, listener).broker_id


def _leader(image: Image, key: PartitionKey) -> BrokerId:
    found = leader_of(image, key)
    if isinstance(found, TidelogError):
        raise found
    return found


async def _ask_each(
    names: Iterable[NameT],
    broker_of: Callable[[NameT], BrokerId],
    ask: Callable[[BrokerId, Sequence[NameT]], Coroutine[object, object, None]],
) -> dict[NameT, TidelogError]:
    """Asks each broker of what is its own, all at once; returns what nobody told, and why."""
    failures: dict[NameT, TidelogError] = {}
    by_broker: dict[BrokerId, list[NameT]] = {}
    for name in names:
        try:
            by_broker.setdefault(broker_of(name), []).append(name)
        except TidelogError as error:
            failures[name] = error

    async def ask_one(broker_id: BrokerId, part: Sequence[NameT]) -> None:
        try:
            await ask(broker_id, part)
        except TidelogError as error:
            failures.update((name, error) for name in part)

    async with TaskScope() as scope:
        for broker_id, part in by_broker.items():
            scope.start(ask_one(broker_id, part), name="ask a coordinator or a leader")
    return failures


def _refuse_too_many(count: int, what: str, tried: str) -> None:
    if count > DESCRIBED_MAX:
        raise invalid(tried, f"{count} {what}, the limit is {DESCRIBED_MAX}")


def _unanswered(name: str) -> TidelogError:
    return TidelogError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        tried=f"ask the coordinator of transaction `{name}`",
        happened="it has not answered of this transactional id",
    )

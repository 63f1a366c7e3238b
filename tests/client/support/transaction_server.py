"""A node that knows transactions: the contract of TransactionAdminService from memory.

For tests of the client and the command line alone.
"""

from collections.abc import Callable, Iterable
from typing import Any

import grpc
import msgspec

from tests.client.support.contract_errors import error
from tests.client.support.contract_server import BROKER_ID, ContractServer
from tidelog.client.wire import transactions_admin as calls
from tidelog.client.wire.groups import FIND_COORDINATORS
from tidelog.contract.partitions import by_topic
from tidelog.ports.real.network.errors import TRAILER, encode_error, status_of, status_text
from tidelog.v1 import coordinator_pb2, transaction_admin_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionId, PartitionKey, TopicId

Key = tuple[bytes, int]
ENDING = (
    transaction_admin_pb2.TRANSACTION_STATE_PREPARE_COMMIT,
    transaction_admin_pb2.TRANSACTION_STATE_PREPARE_ABORT,
)
OPEN = (
    transaction_admin_pb2.TRANSACTION_STATE_ONGOING,
    transaction_admin_pb2.TRANSACTION_STATE_PREPARED,
)


class Held(msgspec.Struct):
    """A transactional id."""

    state: transaction_admin_pb2.TransactionState.ValueType
    producer_id: int
    started_ms: int
    age_ms: int
    keys: list[Key]
    waits_for: list[Key]
    principal: str


class TransactionServer(ContractServer):
    """Transactional ids at one coordinator, producers by partition."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, Held] = {}
        self.producers: dict[Key, list[transaction_admin_pb2.ProducerStatus]] = {}
        self.missing_coordinators = 0
        self.lists_before_all = 0
        """So many answers still lack the ids of one coordinator, which moves."""
        self.failures: list[ErrorCode] = []
        """Each is answered once, for every id or partition that is asked for."""
        self.asked: list[str] = []
        self.page_max = 10_000
        self.decided: list[transactions_pb2.DecidePreparedRequest] = []
        self.on_list: Callable[[], object] | None = None
        """Called before each list is made."""

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Its own before those of a plain node."""
        return (_Handlers(self), *super().handlers())

    def hold(
        self,
        name: str,
        state: transaction_admin_pb2.TransactionState.ValueType,
        *places: tuple[str, int],
        producer_id: int = 7,
        started_ms: int = -1,
        age_ms: int = -1,
        waits_for: Iterable[tuple[str, int]] = (),
        principal: str = "",
    ) -> None:
        """A transactional id at its coordinator."""
        self.held[name] = Held(
            state=state,
            producer_id=producer_id,
            started_ms=started_ms,
            age_ms=age_ms,
            keys=[(self.topics[topic], number) for topic, number in places],
            waits_for=[(self.topics[topic], number) for topic, number in waits_for],
            principal=principal,
        )

    def remember(
        self, topic: str, partition: int, producer_id: int, start_offset: int, timestamp_ms: int
    ) -> None:
        """A producer at a partition; -1: no transaction of it is open there."""
        self.producers.setdefault((self.topics[topic], partition), []).append(
            transaction_admin_pb2.ProducerStatus(
                producer_id=producer_id,
                producer_epoch=3,
                last_sequence=9,
                last_timestamp_ms=timestamp_ms,
                transaction_start_offset=start_offset,
                coordinator_epoch=-1,
            )
        )

    # Inside.

    def list_transactions(self, data: bytes) -> bytes:
        if self.on_list is not None:
            self.on_list()
        request = transaction_admin_pb2.ListTransactionsRequest.FromString(data)
        missing = self.missing_coordinators
        if self.lists_before_all:
            self.lists_before_all -= 1
            missing = 1
        found = [
            transaction_admin_pb2.TransactionListing(
                transactional_id=name,
                identity=_identity(held),
                state=held.state,
                age_ms=held.age_ms,
            )
            for name, held in sorted(self.held.items())
            if name > request.after_id
            and (not request.states or held.state in request.states)
            and (not request.min_age_ms or held.age_ms > request.min_age_ms)
        ]
        page = found[: self.page_max]
        return transaction_admin_pb2.ListTransactionsResponse(
            transactions=page,
            next_after_id=page[-1].transactional_id if len(page) < len(found) else "",
            missing_coordinators=missing,
        ).SerializeToString()

    def describe_transactions(self, data: bytes) -> bytes:
        request = transaction_admin_pb2.DescribeTransactionsRequest.FromString(data)
        response = transaction_admin_pb2.DescribeTransactionsResponse()
        failure = self._failure()
        for name in request.transactional_ids:
            each = response.transactions.add(transactional_id=name)
            code = failure or (None if name in self.held else ErrorCode.TRANSACTION_NOT_FOUND)
            if code is not None:
                each.error.CopyFrom(error(code))
                continue
            held = self.held[name]
            each.identity.CopyFrom(_identity(held))
            each.state = held.state
            each.start_time_ms = held.started_ms
            each.timeout_ms = 60_000
            each.coordinator_id = BROKER_ID
            each.principal = held.principal
            each.topics.extend(by_topic(map(_key, held.keys)))
            each.waits_for.extend(by_topic(map(_key, held.waits_for)))
        return response.SerializeToString()

    def abort_transaction(self, data: bytes) -> bytes:
        request = transaction_admin_pb2.AbortTransactionRequest.FromString(data)
        self._refuse()
        held = self.held.get(request.transactional_id)
        if held is None:
            raise _refusal(ErrorCode.TRANSACTION_NOT_FOUND)
        was_aborted = held.state in OPEN
        if was_aborted and not request.validate_only:
            held.state = transaction_admin_pb2.TRANSACTION_STATE_COMPLETE_ABORT
            held.age_ms = held.started_ms = -1
        return transaction_admin_pb2.AbortTransactionResponse(
            was_aborted=was_aborted
        ).SerializeToString()

    def describe_producers(self, data: bytes) -> bytes:
        request = transaction_admin_pb2.DescribeProducersRequest.FromString(data)
        response = transaction_admin_pb2.DescribeProducersResponse()
        failure = self._failure()
        for partition in request.partitions:
            each = response.partitions.add(partition=partition)
            if failure is not None:
                each.error.CopyFrom(error(failure))
            else:
                key = (partition.topic_id, partition.partition)
                each.producers.extend(self.producers.get(key, []))
        return response.SerializeToString()

    def abort_hanging(self, data: bytes) -> bytes:
        request = transaction_admin_pb2.AbortHangingTransactionRequest.FromString(data)
        self._refuse()
        if any(
            held.producer_id == request.producer_id and held.state in (*OPEN, *ENDING)
            for held in self.held.values()
        ):
            raise _refusal(ErrorCode.INVALID_TRANSACTION_STATE)
        for each in self.producers[request.partition.topic_id, request.partition.partition]:
            if each.producer_id == request.producer_id and not request.validate_only:
                assert each.transaction_start_offset == request.transaction_start_offset
                each.transaction_start_offset = -1
        return transaction_admin_pb2.AbortHangingTransactionResponse().SerializeToString()

    def find_coordinators(self, data: bytes) -> bytes:
        request = coordinator_pb2.FindCoordinatorsRequest.FromString(data)
        assert request.kind == coordinator_pb2.COORDINATOR_KIND_TRANSACTION
        return coordinator_pb2.FindCoordinatorsResponse(
            coordinators=[
                coordinator_pb2.CoordinatorPlace(key=key, broker_id=BROKER_ID, address=self.address)
                for key in request.keys
            ]
        ).SerializeToString()

    def decide_prepared(self, data: bytes) -> bytes:
        request = transactions_pb2.DecidePreparedRequest.FromString(data)
        self._refuse()
        self.decided.append(request)
        held = self.held[request.transactional_id]
        is_commit = request.decision == transactions_pb2.TRANSACTION_DECISION_COMMIT
        held.state = (
            transaction_admin_pb2.TRANSACTION_STATE_COMPLETE_COMMIT
            if is_commit
            else transaction_admin_pb2.TRANSACTION_STATE_COMPLETE_ABORT
        )
        return transactions_pb2.DecidePreparedResponse().SerializeToString()

    def _failure(self) -> ErrorCode | None:
        return self.failures.pop(0) if self.failures else None

    def _refuse(self) -> None:
        if (code := self._failure()) is not None:
            raise _refusal(code)


def _identity(held: Held) -> transactions_pb2.TransactionalIdentity:
    return transactions_pb2.TransactionalIdentity(producer_id=held.producer_id, producer_epoch=3)


def _key(key: Key) -> PartitionKey:
    return PartitionKey(TopicId(key[0]), PartitionId(key[1]))


def _refusal(code: ErrorCode) -> TidelogError:
    return TidelogError(code, tried="serve a test", happened="as the test wants")


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, server: TransactionServer) -> None:
        self._server = server
        self._handlers: dict[str, Callable[[bytes], bytes]] = {
            calls.LIST_TRANSACTIONS: server.list_transactions,
            calls.DESCRIBE_TRANSACTIONS: server.describe_transactions,
            calls.ABORT_TRANSACTION: server.abort_transaction,
            calls.DESCRIBE_PRODUCERS: server.describe_producers,
            calls.ABORT_HANGING: server.abort_hanging,
            calls.DECIDE_PREPARED: server.decide_prepared,
            FIND_COORDINATORS: server.find_coordinators,
        }

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            return None

        def reply(data: bytes, context: Any) -> bytes:
            self._server.asked.append(method.rpartition("/")[2])
            try:
                return handler(data)
            except TidelogError as refusal:
                context.set_trailing_metadata(((TRAILER, encode_error(refusal)),))
                context.abort(status_of(refusal), status_text(refusal))
                raise

        return grpc.unary_unary_rpc_method_handler(reply)

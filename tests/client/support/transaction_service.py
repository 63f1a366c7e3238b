"""The contract of transactions served from memory: a coordinator, and what leaders ask it.

For tests of the client alone: what a real coordinator does belongs to tests on a real node.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.client.support.contract_errors import error
from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.phases import Decision, Identity
from tidelog.client.types.records import TopicPartition
from tidelog.client.wire import transactions as wire_transactions
from tidelog.v1 import transactions_pb2
from tidelog.wire.batch import BatchHeader, decode_batch, read_header
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import LeaderEpoch, Offset, TopicId

if TYPE_CHECKING:
    from tests.client.support.contract_server import ContractServer

_DECISIONS = {
    transactions_pb2.TRANSACTION_DECISION_COMMIT: Decision.COMMIT,
    transactions_pb2.TRANSACTION_DECISION_ABORT: Decision.ABORT,
}


class Refused(Exception):
    """The coordinator answers with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class Transactional:
    """One transactional id, as its coordinator knows it."""

    def __init__(self, producer_id: int) -> None:
        self.current = Identity(producer_id, 0)
        self.last: Identity | None = None
        self.last_decision: Decision | None = None
        """None: aborted by a timeout, an operator or whoever took over."""
        self.is_ongoing = False
        self.is_prepared = False
        self.token: tuple[Identity, Decision] | None = None
        self.finishing = 0
        """So many batches are told that the transaction before is being finished."""


class TransactionService:
    """Handlers of a ContractServer."""

    def __init__(self, server: "ContractServer") -> None:
        self.ids: dict[str, Transactional] = {}
        self.decided: dict[Identity, Decision] = {}
        self.staged: dict[Identity, list[tuple[str, OffsetToCommit]]] = {}
        self.asked: list[str] = []
        """Which methods of the service were called, in order."""
        self.timeouts_ms: list[int] = []
        """That producers have asked for."""
        self.finishing = 0
        """After an end so many batches are told to come again."""
        self.refuse: Callable[[str], ErrorCode | None] | None = None
        """By method, before anything else is looked at."""
        self.timeout_ms_max = 900_000
        self._server = server
        self._lock = threading.Lock()

    def handlers(self) -> dict[str, Callable[[bytes, Any], bytes]]:
        return {
            wire_transactions.INITIALIZE: self.initialize,
            wire_transactions.END: self.end,
            wire_transactions.PREPARE: self.prepare,
            wire_transactions.DECIDE: self.decide,
            wire_transactions.SEND_OFFSETS: self.send_offsets,
        }

    def of(self, transactional_id: str) -> Transactional:
        found = self.ids.get(transactional_id)
        if found is None:
            found = self.ids[transactional_id] = Transactional(1_000 + len(self.ids))
        return found

    # What a test looks at.

    def committed(self, topic: str) -> list[bytes]:
        """What readers of committed records are given, partition by partition."""
        found: list[bytes] = []
        for number in self._server.partitions_of(self._server.topics[topic]):
            for _, _, data in self._server.log(topic, number).batches:
                header = read_header(data)
                if self._counts(header):
                    found += [bytes(record[4] or b"") for record in decode_batch(data)]
        return found

    def _counts(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return True
        identity = Identity(header.producer_id, header.producer_epoch)
        return self.decided.get(identity) is Decision.COMMIT

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts what is open."""
        with self._lock:
            self._next(self.ids[transactional_id], None)

    def take_over(self, transactional_id: str) -> None:
        """Another producer takes the id over, and goes on with a transaction of its own."""
        with self._lock:
            for _ in range(2):
                self._next(self.of(transactional_id), None)

    # Handlers.

    def initialize(self, data: bytes, context: Any) -> bytes:
        request = transactions_pb2.InitTransactionalProducerRequest.FromString(data)
        with self._lock:
            self._note("initialize", context)
            self.timeouts_ms.append(request.transaction_timeout_ms)
            if request.transaction_timeout_ms > self.timeout_ms_max:
                _refuse(context, ErrorCode.INVALID_ARGUMENT)
            found = self.of(request.transactional_id)
            if found.is_prepared:
                _refuse(context, ErrorCode.TRANSACTION_PREPARED)
            expected = _identity(request.expected) if request.HasField("expected") else None
            if expected is not None and expected not in (found.current, found.last):
                _refuse(context, ErrorCode.FENCED_PRODUCER_EPOCH)
            if expected is None or expected == found.current:
                self._next(found, None)
            return transactions_pb2.InitTransactionalProducerResponse(
                identity=_message(found.current), max_in_flight_batches=16
            ).SerializeToString()

    def end(self, data: bytes, context: Any) -> bytes:
        request = transactions_pb2.EndTransactionRequest.FromString(data)
        identity, decision = _identity(request.identity), _DECISIONS[request.decision]
        with self._lock:
            self._note(f"end {decision.value}", context)
            found = self.of(request.transactional_id)
            if identity == found.current:
                if found.is_prepared:
                    _refuse(context, ErrorCode.TRANSACTION_PREPARED)
                self._next(found, decision)
            elif identity != found.last or found.is_ongoing:
                _refuse(context, ErrorCode.FENCED_PRODUCER_EPOCH)
            elif found.last_decision is None:
                _refuse(context, ErrorCode.TRANSACTION_ABORTED)
            elif found.last_decision is not decision:
                _refuse(context, ErrorCode.INVALID_TRANSACTION_STATE)
            return transactions_pb2.EndTransactionResponse(
                identity=_message(found.current)
            ).SerializeToString()

    def prepare(self, data: bytes, context: Any) -> bytes:
        request = transactions_pb2.PrepareTransactionRequest.FromString(data)
        identity = _identity(request.identity)
        with self._lock:
            self._note("prepare", context)
            found = self.of(request.transactional_id)
            if identity == found.last and found.last_decision is None:
                _refuse(context, ErrorCode.TRANSACTION_ABORTED)
            if identity != found.current:
                _refuse(context, ErrorCode.FENCED_PRODUCER_EPOCH)
            found.is_prepared = True
        return transactions_pb2.PrepareTransactionResponse().SerializeToString()

    def decide(self, data: bytes, context: Any) -> bytes:
        request = transactions_pb2.DecidePreparedRequest.FromString(data)
        identity, decision = _identity(request.identity), _DECISIONS[request.decision]
        with self._lock:
            self._note(f"decide {decision.value}", context)
            found = self.ids.get(request.transactional_id)
            if found is None:
                _refuse(context, ErrorCode.TRANSACTION_NOT_FOUND)
            elif identity == found.current and found.is_prepared:
                self._next(found, decision)
                found.token = identity, decision
            elif found.token != (identity, decision):
                _refuse(context, ErrorCode.INVALID_TRANSACTION_STATE)
        return transactions_pb2.DecidePreparedResponse().SerializeToString()

    def send_offsets(self, data: bytes, context: Any) -> bytes:
        request = transactions_pb2.SendOffsetsRequest.FromString(data)
        identity = _identity(request.identity)
        answer = transactions_pb2.SendOffsetsResponse()
        with self._lock:
            self._note("send offsets", context)
            try:
                self._check_member(request)
                self._add(self.of(request.transactional_id), identity)
            except Refused as refused:
                answer.error.CopyFrom(error(refused.code))
                return answer.SerializeToString()
            staged = self.staged.setdefault(identity, [])
            staged += [(request.group, _offset(each)) for each in request.offsets]
        return answer.SerializeToString()

    def _check_member(self, request: transactions_pb2.SendOffsetsRequest) -> None:
        coordinator = self._server.groups.of(request.group)
        if self._server.groups.is_away:
            raise Refused(ErrorCode.NOT_COORDINATOR)
        member = coordinator.members.get(request.member_id)
        if member is None:
            if request.member_id or coordinator.members:
                raise Refused(ErrorCode.UNKNOWN_MEMBER)
            return
        for each in request.offsets:
            owner = coordinator.owner(_offset(each).key)
            if owner != request.member_id:
                raise Refused(ErrorCode.STALE_ASSIGNMENT)

    # What leaders ask.

    def admit(self, header: BatchHeader, transactional_id: str) -> ErrorCode | None:
        """Whether a batch of a transaction is let in; under the server's lock."""
        with self._lock:
            try:
                found = self.ids.get(transactional_id)
                if found is None:
                    return ErrorCode.INVALID_ARGUMENT
                if found.finishing:
                    found.finishing -= 1
                    return ErrorCode.CONCURRENT_TRANSACTIONS
                self._add(found, Identity(header.producer_id, header.producer_epoch))
            except Refused as refused:
                return refused.code
        return None

    # Inside, under the lock.

    def _note(self, what: str, context: Any) -> None:
        self.asked.append(what)
        code = self.refuse(what) if self.refuse is not None else None
        if code is not None:
            _refuse(context, code)

    def _add(self, found: Transactional, identity: Identity) -> None:
        if identity == found.current and found.is_prepared:
            raise Refused(ErrorCode.TRANSACTION_PREPARED)
        if identity == found.last and found.last_decision is None:
            raise Refused(ErrorCode.TRANSACTION_ABORTED)
        if identity != found.current:
            raise Refused(ErrorCode.FENCED_PRODUCER_EPOCH)
        found.is_ongoing = True

    def _next(self, found: Transactional, decision: Decision | None) -> None:
        was = found.current
        self.decided[was] = decision or Decision.ABORT
        staged = self.staged.pop(was, [])
        if decision is Decision.COMMIT:
            for group, each in staged:
                coordinator = self._server.groups.of(group)
                coordinator.committed[each.key] = each
        found.last, found.last_decision = was, decision
        found.current = Identity(was.producer_id, was.producer_epoch + 1)
        found.is_ongoing = found.is_prepared = False
        found.finishing = self.finishing


def _refuse(context: Any, code: ErrorCode) -> None:
    """As a broker refuses a call as a whole."""
    import grpc

    trailer = (("tidelog-error-bin", error(code).SerializeToString()),)
    context.set_trailing_metadata(trailer)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, code.name)


def _identity(found: transactions_pb2.TransactionalIdentity) -> Identity:
    return Identity(found.producer_id, found.producer_epoch)


def _message(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _offset(each: transactions_pb2.TransactionOffset) -> OffsetToCommit:
    return OffsetToCommit(
        topic_partition=TopicPartition("", each.partition),
        topic_id=TopicId(each.topic_id),
        committed_offset=Offset(each.committed_offset),
        leader_epoch=LeaderEpoch(each.leader_epoch),
        metadata=each.metadata,
    )

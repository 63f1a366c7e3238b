"""TransactionService: conversions only."""

from tidelog.broker.log.producer_state import WINDOW_BATCHES
from tidelog.broker.services.transactions.handler import TransactionsHandler
from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.messages import (
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    PrepareTransaction,
)
from tidelog.broker.transactions.state.states import Decision
from tidelog.ports import RequestContext, UnaryHandler
from tidelog.v1 import transaction_coordinator_pb2, transactions_pb2
from tidelog.wire.ids import ProducerEpoch, ProducerId
from tidelog.wire.refusals import invalid

_DECISIONS = {
    transactions_pb2.TRANSACTION_DECISION_COMMIT: Decision.COMMIT,
    transactions_pb2.TRANSACTION_DECISION_ABORT: Decision.ABORT,
}


class TransactionRpc:
    """The service's methods, but for the one that coordinators of groups answer."""

    def __init__(self, handler: TransactionsHandler) -> None:
        self._handler = handler

    def table(self) -> dict[str, UnaryHandler]:
        """By full name."""
        service = "/tidelog.v1.TransactionService"
        return {
            f"{service}/InitTransactionalProducer": self.init,
            f"{service}/EndTransaction": self.end,
            f"{service}/PrepareTransaction": self.prepare,
            f"{service}/DecidePrepared": self.decide,
        }

    async def init(self, context: RequestContext, message: bytes) -> bytes:
        """`InitTransactionalProducer`."""
        del context
        asked = transactions_pb2.InitTransactionalProducerRequest.FromString(message)
        expected = _read_identity(asked.expected) if asked.HasField("expected") else None
        answer = await self._handler.init(
            InitTransactionalProducer(
                transactional_id=asked.transactional_id,
                transaction_timeout_ms=asked.transaction_timeout_ms,
                expected=expected,
            )
        )
        return transactions_pb2.InitTransactionalProducerResponse(
            identity=identity_message(answer.identity), max_in_flight_batches=WINDOW_BATCHES
        ).SerializeToString()

    async def end(self, context: RequestContext, message: bytes) -> bytes:
        """`EndTransaction`."""
        del context
        asked = transactions_pb2.EndTransactionRequest.FromString(message)
        answer = await self._handler.end(
            EndTransaction(
                transactional_id=asked.transactional_id,
                identity=identity_in(asked),
                decision=_read_decision(asked.decision, tried="end a transaction"),
            )
        )
        return transactions_pb2.EndTransactionResponse(
            identity=identity_message(answer.identity)
        ).SerializeToString()

    async def prepare(self, context: RequestContext, message: bytes) -> bytes:
        """`PrepareTransaction`."""
        asked = transactions_pb2.PrepareTransactionRequest.FromString(message)
        await self._handler.prepare(
            PrepareTransaction(
                transactional_id=asked.transactional_id,
                identity=identity_in(asked),
                principal=context.principal,
            )
        )
        return transactions_pb2.PrepareTransactionResponse().SerializeToString()

    async def decide(self, context: RequestContext, message: bytes) -> bytes:
        """`DecidePrepared`."""
        del context
        asked = transactions_pb2.DecidePreparedRequest.FromString(message)
        await self._handler.decide(
            DecidePrepared(
                transactional_id=asked.transactional_id,
                identity=identity_in(asked),
                decision=_read_decision(asked.decision, tried="decide a prepared transaction"),
            )
        )
        return transactions_pb2.DecidePreparedResponse().SerializeToString()


_WithIdentity = (
    transactions_pb2.EndTransactionRequest
    | transactions_pb2.PrepareTransactionRequest
    | transactions_pb2.DecidePreparedRequest
    | transaction_coordinator_pb2.TransactionPartitions
)


def identity_in(asked: _WithIdentity) -> Identity:
    """Of a request that must have one: unset it would read as the first producer's, 0@0."""
    if not asked.HasField("identity"):
        raise invalid("read the identity of a transaction", "the request has none")
    return _read_identity(asked.identity)


def _read_identity(message: transactions_pb2.TransactionalIdentity) -> Identity:
    """As it was sent; the core judges it."""
    return Identity(ProducerId(message.producer_id), ProducerEpoch(message.producer_epoch))


def identity_message(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    """To be sent."""
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _read_decision(
    decision: transactions_pb2.TransactionDecision.ValueType, *, tried: str
) -> Decision:
    found = _DECISIONS.get(decision)
    if found is None:
        raise invalid(tried, f"the decision is number {decision}", "Set it to COMMIT or ABORT.")
    return found

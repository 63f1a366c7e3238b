"""The contract of transactions as the engine sees it.

Owns what the engine's requests are as protobuf, and what their answers mean to it. It must never
decide anything but one thing, which only the wire knows: whether a request that failed may have
been carried out all the same.
"""

from typing import Final

from tidelog.client.engine.group import messages as group_messages
from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.produce.outcomes import OUTCOME_UNKNOWN
from tidelog.client.engine.transaction.messages import (
    Answered,
    Coordinated,
    CoordinatorFailed,
    CoordinatorFound,
    SendDecide,
    SendEnd,
    SendInitialize,
    SendOffsets,
    SendPrepare,
)
from tidelog.client.engine.transaction.phases import Decision, Identity
from tidelog.client.errors import PeerError, is_lost
from tidelog.client.wire import groups as wire_groups
from tidelog.client.wire.calls import error_of
from tidelog.v1 import coordinator_pb2, transactions_pb2
from tidelog.wire.errors import ErrorCode, TidelogError

_SERVICE: Final = "/tidelog.v1.TransactionService"
INITIALIZE: Final = f"{_SERVICE}/InitTransactionalProducer"
END: Final = f"{_SERVICE}/EndTransaction"
PREPARE: Final = f"{_SERVICE}/PrepareTransaction"
DECIDE: Final = f"{_SERVICE}/DecidePrepared"
SEND_OFFSETS: Final = f"{_SERVICE}/SendOffsets"

Request = SendInitialize | SendOffsets | SendEnd | SendPrepare | SendDecide

_DECISIONS: Final = {
    Decision.COMMIT: transactions_pb2.TRANSACTION_DECISION_COMMIT,
    Decision.ABORT: transactions_pb2.TRANSACTION_DECISION_ABORT,
}
_NOT_CARRIED_OUT: Final = frozenset(
    {
        ErrorCode.INVALID_ARGUMENT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NOT_IMPLEMENTED,
        ErrorCode.UNAUTHENTICATED,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.RESOURCE_EXHAUSTED,
        ErrorCode.FENCED_PRODUCER_EPOCH,
        ErrorCode.INVALID_TRANSACTION_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTED,
        ErrorCode.TRANSACTION_NOT_FOUND,
        ErrorCode.TRANSACTION_PREPARED,
    }
)
"""A coordinator that answers so has looked at its state and refused. One that answers anything else
may have begun: NOT_COORDINATOR is also what comes of a decision that was appended by a leader which
was deposed before it knew that the others have it."""


def find_request(of: Coordinated) -> bytes:
    """Asks any broker."""
    kind = coordinator_pb2.COORDINATOR_KIND_TRANSACTION
    if of.is_group:
        kind = coordinator_pb2.COORDINATOR_KIND_GROUP
    return wire_groups.find_coordinators_request([of.name], kind)


def coordinator_came(
    of: Coordinated, answer: bytes | TidelogError
) -> CoordinatorFound | CoordinatorFailed:
    """What came of FindCoordinator."""
    found = wire_groups.coordinator_came(answer)
    if isinstance(found, group_messages.CoordinatorFailed):
        return CoordinatorFailed(of=of, error=found.error)
    return CoordinatorFound(of=of, address=found.address)


def request_of(effect: Request, transactional_id: str, timeout_ms: int) -> tuple[str, bytes]:
    """Method and request; `timeout_ms`: after which a transaction in progress is aborted."""
    match effect:
        case SendInitialize():
            return INITIALIZE, _initialize(effect, transactional_id, timeout_ms)
        case SendOffsets():
            return SEND_OFFSETS, _offsets(effect, transactional_id)
        case SendEnd():
            ended = transactions_pb2.EndTransactionRequest(
                transactional_id=transactional_id,
                identity=_identity(effect.identity),
                decision=_DECISIONS[effect.decision],
            )
            return END, ended.SerializeToString()
        case SendPrepare():
            prepared = transactions_pb2.PrepareTransactionRequest(
                transactional_id=transactional_id, identity=_identity(effect.identity)
            )
            return PREPARE, prepared.SerializeToString()
        case SendDecide():
            decided = transactions_pb2.DecidePreparedRequest(
                transactional_id=effect.token.transactional_id,
                identity=_identity(effect.token.identity),
                decision=_DECISIONS[effect.decision],
            )
            return DECIDE, decided.SerializeToString()


def _initialize(effect: SendInitialize, transactional_id: str, timeout_ms: int) -> bytes:
    request = transactions_pb2.InitTransactionalProducerRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if effect.expected is not None:
        request.expected.CopyFrom(_identity(effect.expected))
    return request.SerializeToString()


def _offsets(effect: SendOffsets, transactional_id: str) -> bytes:
    return transactions_pb2.SendOffsetsRequest(
        transactional_id=transactional_id,
        identity=_identity(effect.identity),
        group=effect.member.group,
        member_id=effect.member.member_id,
        member_epoch=effect.member.member_epoch,
        offsets=map(_offset, effect.offsets),
    ).SerializeToString()


def _offset(each: OffsetToCommit) -> transactions_pb2.TransactionOffset:
    return transactions_pb2.TransactionOffset(
        topic_id=each.topic_id,
        partition=each.topic_partition.partition,
        committed_offset=each.committed_offset,
        leader_epoch=each.leader_epoch,
        metadata=each.metadata,
    )


def _identity(identity: Identity) -> transactions_pb2.TransactionalIdentity:
    return transactions_pb2.TransactionalIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def _read_identity(found: transactions_pb2.TransactionalIdentity) -> Identity:
    return Identity(found.producer_id, found.producer_epoch)


def answer_came(effect: Request, answer: bytes | TidelogError) -> Answered:
    """What came of a request."""
    if isinstance(answer, TidelogError):
        return _failed(effect, answer)
    match effect:
        case SendInitialize():
            begun = transactions_pb2.InitTransactionalProducerResponse.FromString(answer)
            identity = _read_identity(begun.identity) if begun.HasField("identity") else None
            return Answered(
                number=effect.number,
                identity=identity,
                batches_in_flight_max=begun.max_in_flight_batches,
            )
        case SendEnd():
            ended = transactions_pb2.EndTransactionResponse.FromString(answer)
            identity = _read_identity(ended.identity) if ended.HasField("identity") else None
            return Answered(number=effect.number, identity=identity)
        case SendOffsets():
            refused = error_of(transactions_pb2.SendOffsetsResponse.FromString(answer).error)
            if refused is not None:
                return _failed(effect, refused)
            return Answered(number=effect.number)
        case SendPrepare() | SendDecide():
            return Answered(number=effect.number)


def _failed(effect: Request, error: TidelogError) -> Answered:
    return Answered(number=effect.number, error=error, is_doubtful=may_be_carried_out(error))


def may_be_carried_out(error: TidelogError) -> bool:
    """Whether a request that ended so may have had its effect."""
    if is_lost(error) or error.code in OUTCOME_UNKNOWN:
        return True
    return isinstance(error, PeerError) and error.code not in _NOT_CARRIED_OUT

"""Requests in few words, and houses to send them to."""

from tests.broker.transactions.support.house import House, born, identity, key
from tidelog.broker.transactions.state.answers import AddPartitionsAnswer, Identity, InitAnswer
from tidelog.broker.transactions.state.messages import (
    AddPartitions,
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    PrepareTransaction,
)
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.ids import PartitionKey

WALL_MS = 1_700_000_000_000
A0, A1, B0 = key("a", 0), key("a", 1), key("b", 0)
LAST_EPOCH = identity(7, 32_766)


def init(expected: Identity | None = None, name: str = "t") -> InitTransactionalProducer:
    """Take the id over."""
    return InitTransactionalProducer(transactional_id=name, expected=expected)


def add(
    by: Identity, *keys: PartitionKey, name: str = "t", verify_only: bool = False
) -> AddPartitions:
    """A leader asks; for A0 if nothing is named."""
    return AddPartitions(
        transactional_id=name,
        identity=by,
        keys=keys or (A0,),
        verify_only=verify_only,
    )


def commit(by: Identity, name: str = "t") -> EndTransaction:
    """Decide so."""
    return EndTransaction(transactional_id=name, identity=by, decision=Decision.COMMIT)


def abort(by: Identity, name: str = "t") -> EndTransaction:
    """Decide so."""
    return EndTransaction(transactional_id=name, identity=by, decision=Decision.ABORT)


def prepare(by: Identity, name: str = "t", principal: str = "alice") -> PrepareTransaction:
    """The first half."""
    return PrepareTransaction(transactional_id=name, identity=by, principal=principal)


def decide(token: Identity, decision: Decision, name: str = "t") -> DecidePrepared:
    """The second half."""
    return DecidePrepared(transactional_id=name, identity=token, decision=decision)


def begun(house: House, name: str = "t") -> Identity:
    """A producer of the id that has a transaction in progress, on A0."""
    by = house.ask(init(name=name), InitAnswer).identity
    house.ask(add(by, name=name), AddPartitionsAnswer)
    house.leaders.produce(A0, by)
    return by


def worn_out() -> House:
    """A coordinator whose id `t` has reached the last epoch."""
    return House(log=(born("t", LAST_EPOCH, WALL_MS),))

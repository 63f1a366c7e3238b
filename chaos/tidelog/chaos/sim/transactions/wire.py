"""Calls of the cores' run: what travels between its clients and brokers, and how."""

from typing import Any, Final

import msgspec

from tidelog.broker.transactions.state.answers import (
    AddPartitionsAnswer,
    DecideAnswer,
    EndAnswer,
    Identity,
    InitAnswer,
    PrepareAnswer,
)
from tidelog.broker.transactions.state.messages import (
    AddPartitions,
    DecidePrepared,
    EndTransaction,
    InitTransactionalProducer,
    PrepareTransaction,
)
from tidelog.chaos.sim.world.process import SimulatedPorts
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import PartitionKey


class Produce(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a transaction."""

    partition: str
    transactional_id: str
    identity: Identity
    sequence: int
    value: str


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    """Where it lies."""

    offset: int


class SendOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of a group, in a transaction."""

    group: str
    generation: int
    transactional_id: str
    identity: Identity
    position: int
    state: int


class FetchOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is, once no transaction has any offsets of it staged; joins it as well."""

    group: str
    joins: bool


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    """It."""

    position: int
    state: int
    generation: int


class WriteMarkers(msgspec.Struct, frozen=True, kw_only=True):
    """End a transaction in these partitions of one leader."""

    keys: tuple[PartitionKey, ...]
    identity: Identity
    is_commit: bool
    coordinator_epoch: int


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """Of each partition the code of an error, 0: the marker is committed."""

    codes: tuple[int, ...]


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition, for a reader of committed ones."""

    partition: str
    offset: int
    records_max: int
    """0: nothing but the end."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """Data as they lie there, and what to skip of them."""

    records: tuple[tuple[int, int, str], ...]
    """Offset, producer id, value; of a marker no value."""
    aborted: tuple[tuple[int, int, int], ...]
    """Producer id, first offset, offset of the marker."""
    next_offset: int
    stable: int


class Find(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads a log, as far as the broker that is asked knows."""

    log: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Its address."""

    address: str


_ANSWERS: Final[dict[type, type]] = {
    InitTransactionalProducer: InitAnswer,
    AddPartitions: AddPartitionsAnswer,
    EndTransaction: EndAnswer,
    PrepareTransaction: PrepareAnswer,
    DecidePrepared: DecideAnswer,
    Produce: Produced,
    SendOffsets: AddPartitionsAnswer,
    FetchOffsets: Offsets,
    WriteMarkers: Marked,
    Fetch: Fetched,
    Find: Place,
}
"""What each request is answered with."""
REQUESTS: Final = tuple(_ANSWERS)
COORDINATED: Final = (
    InitTransactionalProducer,
    AddPartitions,
    EndTransaction,
    PrepareTransaction,
    DecidePrepared,
)
"""For the coordinator of a transactional id."""
HELD: Final = frozenset(
    each.__name__ for each in REQUESTS if each not in (Fetch, Find, FetchOffsets)
)
"""Requests that may be held, or their answers."""
_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    each: msgspec.msgpack.Decoder(each) for each in _ANSWERS
}
_ANSWER_DECODERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    each: msgspec.msgpack.Decoder(answer) for each, answer in _ANSWERS.items()
}
_ENCODER: Final = msgspec.msgpack.Encoder()


def method_of(request: type) -> str:
    """Its name on the network."""
    return f"/model/{request.__name__}"


def decode(request: type, data: bytes) -> Any:
    """A request that has arrived."""
    return _DECODERS[request].decode(data)


def encode(message: object) -> bytes:
    """A request or an answer."""
    return _ENCODER.encode(message)


async def call(ports: SimulatedPorts, address: str, request: Any, *, timeout_ms: int) -> Any:
    """The answer; a refusal, and everything that goes wrong, is raised."""
    data = await ports.network.call(
        address, method_of(type(request)), encode(request), timeout_ms=timeout_ms
    )
    return _ANSWER_DECODERS[type(request)].decode(data)


DOUBTFUL: Final = frozenset(
    {
        ErrorCode.UNAVAILABLE,
        ErrorCode.DEADLINE_EXCEEDED,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN,
        ErrorCode.CANCELLED,
    }
)
"""What was asked for may have been done all the same: a coordinator that loses its log answers so
while its append may be in it."""

"""What a log knows of the producers that wrote to it: the state of one log. Pure.

Owns, for each producer id, its epoch and its last batches: enough to answer a batch that is sent
again with the offset that it got the first time. It is a function of the batches' headers, and of
what markers say, so that the state rebuilt from a segment equals the live one: a producer is
forgotten by the log's own time (the highest timestamp that it holds), never by a clock. It must
never forget a producer with an open transaction. Stop 5 of a record's walk: epoch and sequence
check.

Theory of operation. `note` takes every header that is stored, in order, and refuses none: what may
be stored is judged before. A transaction is open from its first batch to the next marker, whatever
their epochs: readers see it so. Markers count as writing, or the epoch of the coordinator that
wrote the last one would be forgotten with the producer, and an older coordinator could decide.
Producers stand in the order of their last batches, so the one that wrote longest ago goes first
when there are too many. `expire` belongs to the end of each segment: the state in a sidecar is the
one behind it, and the live state of a log that rolls is expired at the same place.

    u16 version | u16 zero | u32 length | u32 CRC-32C over the rest | msgpack: log time, producers

Version 2 tells of each producer also the epoch of the coordinator that wrote its last marker. A
state that knows of no marker is written as version 1, which says as much: so a log that holds no
transaction can be read by a release that knows of none.
"""

import struct
from typing import Final

import msgspec

from tidelog.broker.log.transactions.admission import NO_COORDINATOR, ProducerHere
from tidelog.wire.batch import BatchHeader, checksum
from tidelog.wire.batch.marker import Marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset, ProducerEpoch

WINDOW_BATCHES: Final = 16
"""As many as the announced number of batches in flight."""
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""As Kafka's producer.id.expiration.ms."""
PRODUCERS_MAX: Final = 10_000
"""Of one log; those with an open transaction may exceed it."""
STATE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of an encoded state."""
NO_TRANSACTION: Final = -1
FORMAT_VERSION: Final = 2
PLAIN_VERSION: Final = 1
"""Of a state that knows of no marker."""

_HEAD: Final = struct.Struct(">HHII")
_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1


class ProducedBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a producer that the log holds."""

    base_sequence: int
    last_offset_delta: int
    base_offset: Offset
    timestamp: int


class Producer(msgspec.Struct, frozen=True, array_like=True):
    """One producer id."""

    producer_id: int
    epoch: int
    batches: tuple[ProducedBatch, ...]
    """The last ones of this epoch, oldest first, at most `WINDOW_BATCHES`."""
    last_timestamp: int
    """The log's own time when it last wrote: records of old events make no producer old."""
    transaction_start: int = NO_TRANSACTION
    """First offset of its open transaction."""
    coordinator_epoch: int = NO_COORDINATOR
    """The highest that a marker of its transactions has carried. Since version 2."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    log_time_ms: int
    producers: tuple[Producer, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Stored)


class ProducerState:
    """Changed by the owner of the log only. Seam: the methods below are what others call."""

    __slots__ = ("_log_time_ms", "_producers")

    def __init__(self, producers: tuple[Producer, ...] = (), log_time_ms: int = -1) -> None:
        self._producers = {each.producer_id: each for each in producers}
        self._log_time_ms = log_time_ms

    @property
    def log_time_ms(self) -> int:
        """The highest timestamp that was noted; -1: none was."""
        return self._log_time_ms

    @property
    def producers(self) -> tuple[Producer, ...]:
        """All of them; the one that wrote last comes last."""
        return tuple(self._producers.values())

    def note(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """A batch was appended, with this header as it was stored; `marker`: what it says, if it is
        one."""
        if header.max_timestamp > self._log_time_ms:
            self._log_time_ms = header.max_timestamp
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        is_old = known is not None and header.producer_epoch < known.epoch
        if is_old and not header.is_transactional:
            return  # A zombie's batch that was let in: it tells nothing of the present epoch.
        # Taken out first, so that the dict's order is the order of last batches.
        self._producers.pop(header.producer_id, None)
        self._producers[header.producer_id] = self.after(known, header, marker)
        if len(self._producers) > PRODUCERS_MAX:
            self._forget_one()

    def after(
        self, known: Producer | None, header: BatchHeader, marker: Marker | None = None
    ) -> Producer:
        """What will be known of the producer, of whom `known` is, once this batch is noted."""
        epoch = header.producer_epoch
        batches: tuple[ProducedBatch, ...] = ()
        transaction_start, coordinator_epoch = NO_TRANSACTION, NO_COORDINATOR
        if known is not None:
            # Sequences begin anew with an epoch; an open transaction lasts until its marker.
            batches = known.batches if known.epoch >= epoch else ()
            if known.epoch > epoch:
                epoch = ProducerEpoch(known.epoch)
            transaction_start = known.transaction_start
            coordinator_epoch = known.coordinator_epoch
        if not header.is_control:
            if header.is_transactional and transaction_start == NO_TRANSACTION:
                transaction_start = header.base_offset
            if header.base_sequence >= 0 and header.producer_epoch == epoch:
                batches = (
                    *batches[1 - WINDOW_BATCHES :],
                    ProducedBatch(
                        header.base_sequence,
                        header.last_offset_delta,
                        header.base_offset,
                        header.max_timestamp,
                    ),
                )
        elif marker is not None:
            # A log takes what is stored: whether its coordinator may write was the leader's to say.
            transaction_start = NO_TRANSACTION
            coordinator_epoch = max(coordinator_epoch, marker.coordinator_epoch)
        assert len(batches) <= WINDOW_BATCHES, f"{len(batches)} batches are beyond the window"
        return Producer(
            header.producer_id,
            epoch,
            batches,
            self._log_time_ms,
            transaction_start,
            coordinator_epoch,
        )

    def _forget_one(self) -> None:
        for producer_id, producer in self._producers.items():
            if producer.transaction_start == NO_TRANSACTION:
                del self._producers[producer_id]
                return

    def expire(self) -> None:
        """At a roll: forget the producers that are older than the log's own time allows."""
        oldest = self._log_time_ms - EXPIRATION_MS
        self._producers = {
            producer_id: producer
            for producer_id, producer in self._producers.items()
            if producer.last_timestamp > oldest or producer.transaction_start != NO_TRANSACTION
        }

    def find(self, producer_id: int) -> Producer | None:
        """What is known of the producer."""
        return self._producers.get(producer_id)

    def here(self, producer_id: int) -> ProducerHere | None:
        """What a leader looks at that admits batches and markers of transactions."""
        known = self._producers.get(producer_id)
        return None if known is None else here_of(known)

    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer ids and the first offsets of their open transactions."""
        return [
            (each.producer_id, each.transaction_start)
            for each in self._producers.values()
            if each.transaction_start != NO_TRANSACTION
        ]

    def first_open_offset(self) -> int:
        """Where the earliest open transaction begins; -1: none is open."""
        return min((start for _, start in self.open_transactions()), default=NO_TRANSACTION)

    def encode(self) -> bytes:
        """One form for one state."""
        producers = self.producers
        version = _version_of(producers)
        told = producers if version > PLAIN_VERSION else tuple(map(_plain, producers))
        body = _encoder.encode((self._log_time_ms, told))
        assert len(body) <= STATE_BYTES_MAX, f"a producer state of {len(body)} bytes"
        head = _HEAD.pack(version, 0, len(body), 0)[:8]
        return b"".join((head, checksum(head + body).to_bytes(4, "big"), body))

    @classmethod
    def decode(cls, data: bytes, *, where: str = "a producer state") -> "ProducerState":
        """What `encode` has written; STORAGE_CORRUPT for anything else, UNSUPPORTED_VERSION for
        what a newer release has written. `where` names it in errors."""
        if len(data) < _HEAD.size:
            raise _corrupt(where, f"it has {len(data)} bytes, its head alone {_HEAD.size}")
        version, zero, length, stored_sum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if checksum(data[:8] + body) != stored_sum:
            raise _corrupt(where, "its bytes contradict its checksum")
        if version > FORMAT_VERSION:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=f"read {where}",
                happened=f"its format version is {version}, this release knows {FORMAT_VERSION}",
            )
        if version < 1 or zero or length != len(body) or length > STATE_BYTES_MAX:
            raise _corrupt(where, f"its head is not one: version {version}, {length} bytes")
        try:
            stored = _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise _corrupt(where, str(error)) from None
        state = cls(stored.producers, stored.log_time_ms)
        if len(state._producers) != len(stored.producers):
            raise _corrupt(where, "it names a producer twice")
        for producer in stored.producers:
            _check(producer, stored.log_time_ms, where)
        if version != _version_of(stored.producers):
            raise _corrupt(where, f"its version is {version}, its producers are not of that one")
        return state

    def copy(self) -> "ProducerState":
        """One that may change by itself."""
        return ProducerState(self.producers, self._log_time_ms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerState):
            return NotImplemented
        # The order counts: it tells who is forgotten first.
        return self._log_time_ms == other._log_time_ms and self.producers == other.producers

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._producers)

    def __repr__(self) -> str:
        return f"ProducerState({len(self._producers)} producers, log time {self._log_time_ms})"


def here_of(known: Producer) -> ProducerHere:
    """The same of a producer whose last batches may be planned and not stored yet."""
    return ProducerHere(
        epoch=known.epoch,
        is_open=known.transaction_start != NO_TRANSACTION,
        coordinator_epoch=known.coordinator_epoch,
    )


def _version_of(producers: tuple[Producer, ...]) -> int:
    has_marker = any(each.coordinator_epoch != NO_COORDINATOR for each in producers)
    return FORMAT_VERSION if has_marker else PLAIN_VERSION


def _plain(producer: Producer) -> tuple[object, ...]:
    """As version 1 tells of it."""
    return (
        producer.producer_id,
        producer.epoch,
        producer.batches,
        producer.last_timestamp,
        producer.transaction_start,
    )


def _check(producer: Producer, log_time_ms: int, where: str) -> None:
    fits = (
        producer.producer_id >= 0
        and 0 <= producer.epoch <= _INT16_MAX
        and len(producer.batches) <= WINDOW_BATCHES
        and producer.transaction_start >= NO_TRANSACTION
        and NO_COORDINATOR <= producer.coordinator_epoch <= _INT32_MAX
        and -1 <= producer.last_timestamp <= log_time_ms
        and all(
            0 <= batch.base_sequence <= _INT32_MAX
            and 0 <= batch.last_offset_delta <= _INT32_MAX
            and batch.base_offset >= 0
            and batch.timestamp <= log_time_ms
            for batch in producer.batches
        )
    )
    if not fits:
        raise _corrupt(where, f"what it tells of producer {producer.producer_id} cannot be")


def _corrupt(where: str, happened: str) -> TidelogError:
    return TidelogError(ErrorCode.STORAGE_CORRUPT, tried=f"read {where}", happened=happened)

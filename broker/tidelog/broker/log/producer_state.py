"""What a log knows of the producers that wrote to it: the state of one log. Pure.

Owns, for each producer id, its epoch and its last batches: enough to answer a batch that is sent
again with the offset that it got the first time. It is a function of the batches' headers alone,
so that the state rebuilt from a segment equals the live one: a producer is forgotten by the log's
own time (the highest timestamp that it holds), never by a clock. It must never forget a producer
with an open transaction. Stop 5 of a record's walk: epoch and sequence check.

Theory of operation. `note` takes every header that is stored, in order, and refuses none: what may
be stored is judged before. Producers stand in the order of their last batches, so the one that
wrote longest ago goes first when there are too many. `expire` belongs to the end of each segment:
the state in a sidecar is the one behind it, and the live state of a log that rolls is expired at
the same place.

    u16 version | u16 zero | u32 length | u32 CRC-32C over the rest | msgpack: log time, producers
"""

import struct
from typing import Final

import msgspec

from tidelog.wire.batch import BatchHeader, checksum
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import Offset

WINDOW_BATCHES: Final = 16
"""As many as the announced number of batches in flight."""
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""As Kafka's producer.id.expiration.ms."""
PRODUCERS_MAX: Final = 10_000
"""Of one log; those with an open transaction may exceed it."""
STATE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of an encoded state."""
NO_TRANSACTION: Final = -1
FORMAT_VERSION: Final = 1

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

    def note(self, header: BatchHeader) -> None:
        """A batch was appended, with this header as it was stored."""
        if header.max_timestamp > self._log_time_ms:
            self._log_time_ms = header.max_timestamp
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return  # A zombie's batch that was let in: it tells nothing of the present epoch.
        # Taken out first, so that the dict's order is the order of last batches.
        self._producers.pop(header.producer_id, None)
        self._producers[header.producer_id] = self.after(known, header)
        if len(self._producers) > PRODUCERS_MAX:
            self._forget_one()

    def after(self, known: Producer | None, header: BatchHeader) -> Producer:
        """What will be known of the producer, of whom `known` is, once this batch is noted."""
        batches: tuple[ProducedBatch, ...] = ()
        transaction_start = NO_TRANSACTION
        if known is not None:
            # Sequences begin anew with an epoch; an open transaction lasts until its marker.
            batches = known.batches if known.epoch == header.producer_epoch else ()
            transaction_start = known.transaction_start
        if header.is_control:
            transaction_start = NO_TRANSACTION
        else:
            if header.is_transactional and transaction_start == NO_TRANSACTION:
                transaction_start = header.base_offset
            if header.base_sequence >= 0:
                batches = (
                    *batches[1 - WINDOW_BATCHES :],
                    ProducedBatch(
                        header.base_sequence,
                        header.last_offset_delta,
                        header.base_offset,
                        header.max_timestamp,
                    ),
                )
        assert len(batches) <= WINDOW_BATCHES, f"{len(batches)} batches are beyond the window"
        return Producer(
            header.producer_id,
            header.producer_epoch,
            batches,
            self._log_time_ms,
            transaction_start,
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

    def first_open_offset(self) -> int:
        """Where the earliest open transaction begins; -1: none is open."""
        return min(
            (
                each.transaction_start
                for each in self._producers.values()
                if each.transaction_start != NO_TRANSACTION
            ),
            default=NO_TRANSACTION,
        )

    def encode(self) -> bytes:
        """One form for one state."""
        body = _encoder.encode(_Stored(self._log_time_ms, self.producers))
        assert len(body) <= STATE_BYTES_MAX, f"a producer state of {len(body)} bytes"
        head = _HEAD.pack(FORMAT_VERSION, 0, len(body), 0)[:8]
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


def _check(producer: Producer, log_time_ms: int, where: str) -> None:
    fits = (
        producer.producer_id >= 0
        and 0 <= producer.epoch <= _INT16_MAX
        and len(producer.batches) <= WINDOW_BATCHES
        and producer.transaction_start >= NO_TRANSACTION
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

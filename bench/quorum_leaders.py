"""Which member of an etcd cluster leads, so that leaders are compared with leaders.

Owns the few bytes of etcd's protocol that this takes. It must never be on the clock of a
measurement.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import grpc

STATUS: Final = "/etcdserverpb.Maintenance/Status"
STATUS_SECONDS_MAX: Final = 10.0
_HEADER: Final = 1
_HEADER_MEMBER: Final = 2
_LEADER: Final = 4
_VARINT: Final = 0
_BYTES: Final = 2


def leader_first(addresses: Sequence[str]) -> list[str]:
    """The leader's address, then the others'."""
    leading = [address for address in addresses if leads(_status(address))]
    return [*leading, *(address for address in addresses if address not in leading)]


def leads(status: bytes) -> bool:
    """Whether the member that gave this StatusResponse is the leader that it names."""
    header, leader = b"", 0
    for number, value in fields(status):
        if number == _HEADER and isinstance(value, bytes):
            header = value
        elif number == _LEADER and isinstance(value, int):
            leader = value
    own = next((value for number, value in fields(header) if number == _HEADER_MEMBER), 0)
    return leader != 0 and own == leader


def _status(address: str) -> bytes:
    with grpc.insecure_channel(address) as channel:
        status: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(STATUS)
        answer: bytes = status(b"", timeout=STATUS_SECONDS_MAX)
    return answer


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message that has varints and bytes only."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        value, place = _varint(message, place)
        if kind == _VARINT:
            yield number, value
        elif kind == _BYTES:
            yield number, message[place : place + value]
            place += value
        else:
            raise ValueError(f"field {number} is of wire type {kind}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place += 1
        shift += 7
        if byte < 0x80:
            return value, place

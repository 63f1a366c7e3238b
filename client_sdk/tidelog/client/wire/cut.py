"""A large fetch answer cut into envelopes and batches, which are not copied.

Protobuf copies batches when it parses, and again when they are asked for. Here only the lengths are
looked at: envelopes go to protobuf, batches stay where gRPC has put them. It must never decide
whether an answer is right: bytes of another form are left to protobuf altogether, which says so.
The counterpart on the broker's side is `broker/rpc/fetch_bytes`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from tidelog.v1 import fetch_pb2

CUT_BYTES: Final = 64 * 1024
"""Smaller answers are parsed as they are: a copy costs less than looking at lengths."""

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_PARTITIONS: Final = fetch_pb2.FetchStreamResponse.PARTITIONS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_BATCHES: Final = fetch_pb2.PartitionBatches.BATCHES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


class CutAnswer(msgspec.Struct, frozen=True):
    """What is left for protobuf, and each partition that was cut out."""

    rest: bytes
    parts: list[tuple[bytes, memoryview]]
    """Envelope and batches."""


class _OtherForm(Exception):
    """The bytes are not what a broker writes."""


def cut_answer(data: bytes) -> CutAnswer:
    """Nothing is cut out of a small answer, nor of one that is not of the expected form."""
    if len(data) < CUT_BYTES:
        return CutAnswer(data, [])
    view = memoryview(data)
    rest: list[memoryview] = []
    parts: list[tuple[bytes, memoryview]] = []
    try:
        for tag, start, value, end in _fields(view):
            if tag == _PARTITIONS:
                parts.append(_cut_partition(view[value:end]))
            else:
                rest.append(view[start:end])
    except _OtherForm:
        return CutAnswer(data, [])
    return CutAnswer(b"".join(rest), parts)


def _cut_partition(view: memoryview) -> tuple[bytes, memoryview]:
    envelope: list[memoryview] = []
    batches = view[:0]
    for tag, start, value, end in _fields(view):
        if tag == _BATCHES:
            batches = view[value:end]
        else:
            envelope.append(view[start:end])
    return b"".join(envelope), batches


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Tag, and where the field, its value and the next field begin."""
    position = 0
    while position < len(view):
        start = position
        tag, position = _varint(view, position)
        kind, value = tag & 7, position
        if kind == _LENGTH_DELIMITED:
            length, value = _varint(view, position)
            position = value + length
        elif kind == _VARINT:
            _, position = _varint(view, position)
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise _OtherForm
        if position > len(view):
            raise _OtherForm
        yield tag, start, value, position


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """The number there, and the position behind it."""
    found = 0
    for place, byte in enumerate(view[position : position + _VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found, position + place + 1
    raise _OtherForm

"""The quorum's messages as they enter: read, and every number in them held to its bound.

Owns that no number of another process gets further than here if adding to it could exceed what the
wire and the files hold. Numbers inside an entry are bound by those around it; see `_read_entries`.
"""

from collections.abc import Iterator
from functools import cache
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tidelog.contract.errors import raise_malformed
from tidelog.metadata_quorum.raft.bounds import NUMBER_MAX

_M = TypeVar("_M", bound=Message)


def parse(kind: type[_M], data: bytes) -> _M:
    """Read a message; INVALID_ARGUMENT if it is none, or one of its numbers cannot be."""
    name = kind.DESCRIPTOR.name
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise_malformed(name, error)
    for path, number in _numbers(message):
        if number > NUMBER_MAX:
            raise_malformed(name, f"{path} {number} is above the largest possible, {NUMBER_MAX}")
    return message


def _numbers(message: Message) -> Iterator[tuple[str, int]]:
    """Those of the message and of its parts, except of parts that are lists."""
    wide, parts = _layout(message.DESCRIPTOR)
    for field in wide:
        yield field, getattr(message, field)
    for part in parts:
        if message.HasField(part):
            for field, number in _numbers(getattr(message, part)):
                yield f"{part}.{field}", number


@cache
def _layout(kind: Descriptor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of its 64-bit numbers, and of its parts."""
    single = [field for field in kind.fields if not field.is_repeated]
    wide = [field.name for field in single if field.type == FieldDescriptor.TYPE_UINT64]
    parts = [field.name for field in single if field.type == FieldDescriptor.TYPE_MESSAGE]
    return tuple(wide), tuple(parts)

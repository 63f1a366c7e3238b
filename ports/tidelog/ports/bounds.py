"""What one message of each method may hold, by the contract's options, held up to every caller.

Owns how a descriptor becomes a shape to walk, and the walk before a handler: nothing is made of a
message that holds too much. It must never let a method be served whose bounds the contract leaves
open.
"""

from functools import cache
from typing import Final

import msgspec
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from tidelog.ports.request_context import RequestContext
from tidelog.v1 import options_pb2
from tidelog.wire.bounds import Bounds, Counted, Field, Shape, count

ELEMENT_BYTES: Final = 2048
"""What an entry takes in memory beside its bytes: of protobuf, of handlers, and of its answer."""
NUMBER_BYTES: Final = 32

_LENGTH: Final = 2
_WIRE_TYPES: Final = {
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
}
"""Of a single value; every other type is a varint."""
_FIXED_BYTES: Final = {1: 8, 5: 4}


class MethodBounds(msgspec.Struct, frozen=True):
    """Of one method."""

    bounds: Bounds
    shape: Shape


def memory_of(counted: Counted) -> int:
    """What is made of a message, beside its bytes: about."""
    return counted.elements * ELEMENT_BYTES + counted.numbers * NUMBER_BYTES


@cache
def bounds_of(method: str) -> MethodBounds:
    """By the name that gRPC uses, `/tidelog.v1.FetchService/Fetch`; its file has been imported."""
    name = method.removeprefix("/").replace("/", ".")
    return read_bounds(descriptor_pool.Default().FindMethodByName(name))


def read_bounds(method: MethodDescriptor) -> MethodBounds:
    """The method's option; its absence is a bug in the contract."""
    options = method.GetOptions()
    assert options.HasExtension(options_pb2.bounds), f"{method.full_name} takes without bounds"
    option = options.Extensions[options_pb2.bounds]
    bounds = Bounds(
        bytes_max=option.bytes_max,
        elements_max=option.elements_max,
        numbers_max=option.numbers_max,
        work_max=option.work_max,
    )
    return MethodBounds(bounds, shape_of(method.input_type))


def shape_of(message: Descriptor, outer: tuple[str, ...] = ()) -> Shape:
    """Of a message type."""
    assert message.full_name not in outer, f"{message.full_name} holds itself: no walk of it ends"
    shape = Shape({})
    for field in message.fields:
        _add(shape, field, (*outer, message.full_name))
    return shape


def _add(shape: Shape, field: FieldDescriptor, outer: tuple[str, ...]) -> None:
    """Under the tags by which protobuf reads the field."""
    within = None if field.message_type is None else shape_of(field.message_type, outer)
    wire_type = _WIRE_TYPES.get(field.type, 0)
    is_number = field.is_repeated and wire_type != _LENGTH
    counts = field.GetOptions().Extensions[options_pb2.counts]
    shape.counts_work = shape.counts_work or bool(counts)
    known = Field(
        shape=within,
        is_element=field.is_repeated and wire_type == _LENGTH,
        is_number=is_number,
        packed_bytes=_FIXED_BYTES.get(wire_type, 0) if is_number else 0,
        counts_partitions=counts == options_pb2.COUNTS_PARTITIONS,
        counts_replicas=counts == options_pb2.COUNTS_REPLICAS_OF_EACH,
    )
    shape.fields[field.number << 3 | wire_type] = known
    if is_number:
        shape.fields[field.number << 3 | _LENGTH] = known
    if field.is_repeated:
        # A list of numbers takes as many steps as a single, unless it is sent unpacked.
        shape.singles += is_number
        shape.singles_of_entry = max(
            shape.singles_of_entry,
            0 if within is None else max(within.singles, within.singles_of_entry),
        )
    else:
        shape.singles += 1 + (0 if within is None else within.singles)
        if within is not None:
            shape.singles_of_entry = max(shape.singles_of_entry, within.singles_of_entry)
    shape.can_hold_entries = (
        shape.can_hold_entries
        or field.is_repeated
        or bool(counts)
        or (within is not None and within.can_hold_entries)
    )


def count_message(method: str, message: bytes) -> Counted:
    """What a message of the method holds; refused beyond its bounds."""
    known = bounds_of(method)
    return count(message, known.shape, known.bounds, tried=f"call {method}")


class MessageCount:
    """Counts what comes to one method: nothing is made of a message that holds too much."""

    def __init__(self, method: str) -> None:
        self._known = bounds_of(method)
        self._tried = f"call {method}"

    def check(self, context: RequestContext, message: bytes) -> Counted:
        """Refuse the message beyond the method's bounds, and where its listener has no room for
        what would be made of it; what it holds."""
        found = count(message, self._known.shape, self._known.bounds, tried=self._tried)
        context.request_room.take(memory_of(found))
        return found

"""Every call says how much one message of it may hold, and that is counted before anything else."""

import importlib
from collections.abc import Iterator

import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from tests.contract import descriptors
from tidelog.chaos.fuzz.messages import largest, one_more, paths
from tidelog.ports import MESSAGE_BYTES_MAX
from tidelog.ports.bounds import MethodBounds, read_bounds
from tidelog.v1 import options_pb2
from tidelog.wire.bounds import Counted, count, steps_max
from tidelog.wire.errors import ErrorCode, TidelogError

KNOWN = {
    "topic": lambda number: f"topic-{number}",
    "name": lambda number: f"topic-{number}",
    "topic_id": lambda number: number.to_bytes(16, "big"),
    "partition": lambda number: number,
}
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def all_methods() -> Iterator[MethodDescriptor]:
    for source in sorted(descriptors.PROTO.glob(f"{descriptors.OURS}*.proto")):
        file = importlib.import_module(f"tidelog.v1.{source.stem}_pb2").DESCRIPTOR
        for service in file.services_by_name.values():
            yield from service.methods


METHODS = {method.full_name.removeprefix("tidelog.v1."): method for method in all_methods()}


def counted(found: MethodBounds, data: bytes) -> Counted:
    return count(data, found.shape, found.bounds, tried="call")


def holds(method: MethodDescriptor, *, is_number: bool) -> bool:
    """Whether its request has such repeated fields, wherever."""
    return bool(
        paths(
            method.input_type,
            is_wanted=lambda field: field.is_repeated and (field.type not in TEXTS) == is_number,
        )
    )


def says_a_count(field: FieldDescriptor) -> bool:
    """Whether its number stands for as many partitions, or replicas."""
    return bool(field.GetOptions().Extensions[options_pb2.counts])


def in_objects(message: Message) -> tuple[int, int]:
    """Elements and numbers of a message, as protobuf made them."""
    elements = numbers = 0
    for field, value in message.ListFields():
        entries = value if field.is_repeated else [value]
        if field.is_repeated and field.type not in TEXTS:
            numbers += len(value)
        elif field.is_repeated:
            elements += len(value)
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for entry in entries:
            below = in_objects(entry)
            elements, numbers = elements + below[0], numbers + below[1]
    return elements, numbers


@pytest.mark.parametrize("name", METHODS)
def test_every_call_is_bounded_in_each_way_in_which_it_can_be_large(name: str) -> None:
    method = METHODS[name]
    bounds = read_bounds(method).bounds
    assert 0 < bounds.bytes_max <= MESSAGE_BYTES_MAX
    assert bool(bounds.elements_max) == holds(method, is_number=False)
    assert bool(bounds.numbers_max) == holds(method, is_number=True)
    assert bool(bounds.work_max) == bool(paths(method.input_type, is_wanted=says_a_count))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_largest_messages_pass_as_protobuf_reads_them_and_one_more_does_not(name: str) -> None:
    made = message_factory.GetMessageClass(METHODS[name].input_type)
    found = read_bounds(METHODS[name])
    for shaped in largest(METHODS[name], KNOWN):
        held = counted(found, shaped.data)
        assert held.steps <= steps_max(found.bounds, found.shape), shaped.name
        assert (held.elements, held.numbers) == in_objects(made.FromString(shaped.data))
    for shaped in one_more(METHODS[name], KNOWN):
        with pytest.raises(TidelogError, match="takes at most") as caught:
            counted(found, shaped.data)
        error = caught.value
        is_long = shaped.name == "bytes"
        assert error.code is (ErrorCode.BATCH_TOO_LARGE if is_long else ErrorCode.INVALID_ARGUMENT)
        assert error.hint.startswith("Split the call"), shaped.name


def lowered(old: pb.FileDescriptorSet, new: pb.FileDescriptorSet) -> list[str]:
    """What a released call took and does not take any more."""
    now = dict(descriptors.methods(new))
    found = []
    for name, method in descriptors.methods(old):
        if not method.options.HasExtension(options_pb2.bounds) or name not in now:
            continue
        before = method.options.Extensions[options_pb2.bounds]
        after = now[name].options.Extensions[options_pb2.bounds]
        for field in before.DESCRIPTOR.fields:
            if getattr(after, field.name) < getattr(before, field.name):
                found.append(f"{name}: {field.name}")
    return found


def test_what_a_released_call_takes_is_never_lowered(
    baseline: pb.FileDescriptorSet, contract: pb.FileDescriptorSet
) -> None:
    assert lowered(baseline, contract) == []
    changed = pb.FileDescriptorSet()
    changed.CopyFrom(contract)
    method = dict(descriptors.methods(changed))["tidelog.v1.FetchService.Fetch"]
    method.options.Extensions[options_pb2.bounds].elements_max -= 1
    assert lowered(contract, changed) == ["tidelog.v1.FetchService.Fetch: elements_max"]

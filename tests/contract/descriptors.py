"""The contract as descriptors: built from the sources, read from the baseline, walked, compared.

Owns what `buf breaking` does not notice: options that were changed or taken away, and extensions
with another number. It never looks at generated code, which may be stale.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import Message

from tests.support.waiting import HANG_SECONDS
from tidelog.v1 import options_pb2

TOP: Final = Path(__file__).resolve().parents[2]
PROTO: Final = TOP / "proto"
BASELINE: Final = PROTO / "baseline.binpb"
BUF_YAML: Final = TOP / "buf.yaml"
BUF: Final = Path(sys.executable).parent / "buf"
OURS: Final = "tidelog/v1/"

# Numbers of fields in descriptor.proto, of which the paths of comments are made.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_EXTENSION = 4, 5, 6, 7
MESSAGE_FIELD, MESSAGE_MESSAGE, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
ENUM_VALUE, SERVICE_METHOD = 2, 2

Path_ = tuple[int, ...]


class Element(NamedTuple):
    """One named thing of the contract."""

    file: str
    kind: str
    name: str
    path: Path_
    proto: Message


def build() -> pb.FileDescriptorSet:
    """The sources as they are now, with comments."""
    done = subprocess.run(
        [str(BUF), "build", str(PROTO), "-o", "-#format=binpb"],
        cwd=TOP,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return pb.FileDescriptorSet.FromString(done.stdout)


def read_baseline() -> pb.FileDescriptorSet:
    """The contract as it was last released."""
    return pb.FileDescriptorSet.FromString(BASELINE.read_bytes())


def our_files(descriptors: pb.FileDescriptorSet) -> list[pb.FileDescriptorProto]:
    """Without those of protobuf itself."""
    return [file for file in descriptors.file if file.name.startswith(OURS)]


def unreleased_files() -> list[str]:
    """What `breaking.ignore` lists, as the names that descriptors use."""
    lines = (line.strip() for line in BUF_YAML.read_text().splitlines())
    prefix = "- proto/"
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix + OURS)]


def elements(descriptors: pb.FileDescriptorSet) -> Iterator[Element]:
    """Every message, field, oneof, enum, value, service, method and extension of ours."""
    for file in our_files(descriptors):
        package = file.package
        for index, message in enumerate(file.message_type):
            yield from _message(file.name, message, package, (FILE_MESSAGE, index))
        for index, enum in enumerate(file.enum_type):
            yield from _enum(file.name, enum, package, (FILE_ENUM, index))
        for index, extension in enumerate(file.extension):
            name = f"{package}.{extension.name}"
            yield Element(file.name, "extension", name, (FILE_EXTENSION, index), extension)
        for index, service in enumerate(file.service):
            yield from _service(file.name, service, package, (FILE_SERVICE, index))


def _message(file: str, message: pb.DescriptorProto, scope: str, path: Path_) -> Iterator[Element]:
    name = f"{scope}.{message.name}"
    if message.options.map_entry:
        return
    yield Element(file, "message", name, path, message)
    for index, field in enumerate(message.field):
        yield Element(file, "field", f"{name}.{field.name}", (*path, MESSAGE_FIELD, index), field)
    for index, oneof in enumerate(message.oneof_decl):
        # `optional` fields are declared by a oneof of their own, which nobody wrote.
        if not any(f.proto3_optional and f.oneof_index == index for f in message.field):
            place = (*path, MESSAGE_ONEOF, index)
            yield Element(file, "oneof", f"{name}.{oneof.name}", place, oneof)
    for index, nested in enumerate(message.nested_type):
        yield from _message(file, nested, name, (*path, MESSAGE_MESSAGE, index))
    for index, enum in enumerate(message.enum_type):
        yield from _enum(file, enum, name, (*path, MESSAGE_ENUM, index))


def _enum(file: str, enum: pb.EnumDescriptorProto, scope: str, path: Path_) -> Iterator[Element]:
    name = f"{scope}.{enum.name}"
    yield Element(file, "enum", name, path, enum)
    for index, value in enumerate(enum.value):
        yield Element(file, "value", f"{name}.{value.name}", (*path, ENUM_VALUE, index), value)


def _service(
    file: str, service: pb.ServiceDescriptorProto, scope: str, path: Path_
) -> Iterator[Element]:
    name = f"{scope}.{service.name}"
    yield Element(file, "service", name, path, service)
    for index, method in enumerate(service.method):
        place = (*path, SERVICE_METHOD, index)
        yield Element(file, "method", f"{name}.{method.name}", place, method)


def methods(descriptors: pb.FileDescriptorSet) -> Iterator[tuple[str, pb.MethodDescriptorProto]]:
    """Every RPC with its full name."""
    for element in elements(descriptors):
        if isinstance(element.proto, pb.MethodDescriptorProto):
            yield element.name, element.proto


def access_of(method: pb.MethodDescriptorProto) -> options_pb2.Access | None:
    """The access option; None: there is none."""
    if not method.options.HasExtension(options_pb2.access):
        return None
    return method.options.Extensions[options_pb2.access]


def comments(descriptors: pb.FileDescriptorSet) -> dict[tuple[str, Path_], str]:
    """Leading comments by file and path; what has none is left out."""
    return {
        (file.name, tuple(location.path)): " ".join(location.leading_comments.split())
        for file in our_files(descriptors)
        for location in file.source_code_info.location
        if location.leading_comments.strip()
    }


def option_changes(
    old: pb.FileDescriptorSet, new: pb.FileDescriptorSet, ignored: list[str]
) -> list[str]:
    """A line for each released element whose options, or number as an extension, differ."""
    now = {(element.kind, element.name): element.proto for element in elements(new)}
    found = []
    for element in elements(old):
        if element.file in ignored:
            continue
        current = now.get((element.kind, element.name))
        if current is None:
            found.append(f"{element.kind} {element.name}: gone")
        elif _options(element.proto) != _options(current):
            before, after = _options(element.proto), _options(current)
            found.append(f"{element.kind} {element.name}: options {before!r}, now {after!r}")
        elif element.kind == "extension" and _extension(element.proto) != _extension(current):
            found.append(
                f"extension {element.name}: {_extension(element.proto)}, now {_extension(current)}"
            )
    return found


def _options(proto: Message) -> bytes:
    """All options as bytes, so that those which this process does not know count as well."""
    options: Message = getattr(proto, "options", pb.FieldOptions())
    copied = type(options)()
    copied.CopyFrom(options)
    if any(field.name == "deprecated" for field, _ in copied.ListFields()):
        copied.ClearField("deprecated")  # what is on its way out may say so
    # Bounds have a rule of their own: they may come and be raised.
    if isinstance(copied, pb.MethodOptions):
        copied.ClearExtension(options_pb2.bounds)
        # Fields that name the caller may be listed where none was.
        if copied.HasExtension(options_pb2.access):
            copied.Extensions[options_pb2.access].ClearField("caller")
    if isinstance(copied, pb.FieldOptions):
        copied.ClearExtension(options_pb2.counts)
    return copied.SerializeToString(deterministic=True)


def _extension(proto: Message) -> tuple[int, str, int, str]:
    assert isinstance(proto, pb.FieldDescriptorProto), f"{proto} is no extension"
    return (proto.number, proto.extendee, proto.type, proto.type_name)

"""The largest messages that each method takes, and those that hold one too many: from descriptors.

Owns the shapes that a caller may choose: each repeated field of a request filled to its method's
bound and to half of it, with empty entries and with plausible ones; its lists of numbers, its
counts of work, its bytes, and fields that nobody knows. A field that is added to the contract is
filled without a word here.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from tidelog.ports.bounds import MethodBounds, read_bounds
from tidelog.v1 import options_pb2
from tidelog.wire.bounds import UNKNOWN_FIELDS_MAX, steps_max

UNKNOWN_NUMBER: Final = 15_000
"""Of a field that no message has."""
_UNKNOWN_TAG: Final = bytes([0xC0, 0xA9, 0x07])
_UNKNOWN_BYTES_TAG: Final = bytes([0xC2, 0xA9, 0x07])
WORK_SHARED_BY: Final = (1, 3, 100)
"""Entries over which the work of a message is spread."""
_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)

Value = Callable[[int], Any]
"""Of a field, in the entry of this number."""
Known = Mapping[str, Value]
"""Plausible values, by the name of a field."""
Path = tuple[FieldDescriptor, ...]


class Shaped(NamedTuple):
    """A message and what it is full of."""

    name: str
    data: bytes


def largest(method: MethodDescriptor, known: Known) -> Iterator[Shaped]:
    """Messages at a bound of the method, none beyond any."""
    found = read_bounds(method)
    yield from _filled(method, found, known, more=0)
    for path in paths(method.input_type, is_wanted=_is_counted):
        for entries in WORK_SHARED_BY:
            yield _work(method, path, found.bounds.work_max // entries, entries, known)
    yield Shaped("bytes", padded(b"", found.bounds.bytes_max))
    yield Shaped("unknown fields", _unknown(found, 0))
    repeated = _repeated(method, found, 0)
    if repeated is not None:
        yield repeated


def one_more(method: MethodDescriptor, known: Known) -> Iterator[Shaped]:
    """Messages that are beyond one bound of the method by one."""
    found = read_bounds(method)
    yield from _filled(method, found, known, more=1)
    for path in paths(method.input_type, is_wanted=_is_counted):
        yield _work(method, path, found.bounds.work_max + 1, 1, known)
    yield Shaped("bytes", padded(b"", found.bounds.bytes_max + 1))
    yield Shaped("unknown fields", _unknown(found, 1))
    repeated = _repeated(method, found, 1)
    if repeated is not None:
        yield repeated


def _unknown(found: MethodBounds, more: int) -> bytes:
    return (_UNKNOWN_TAG + b"\0") * (found.bounds.elements_max + UNKNOWN_FIELDS_MAX + more)


def _repeated(method: MethodDescriptor, found: MethodBounds, more: int) -> Shaped | None:
    """A field that stands once, as often as there may be steps; None: the bytes end before."""
    steps = steps_max(found.bounds, found.shape) + more
    for field in method.input_type.fields:
        tag = field.number << 3
        if field.is_repeated or tag not in found.shape.fields or tag > 0x7F:
            continue
        if 2 * steps <= found.bounds.bytes_max:
            return Shaped(f"{field.name}, again and again", bytes([tag, 0]) * steps)
    return None


def padded(data: bytes, size: int) -> bytes:
    """The message with an unknown field that makes it exactly as long."""
    for length_bytes in range(1, 6):
        length = size - len(data) - len(_UNKNOWN_BYTES_TAG) - length_bytes
        encoded = _varint(length) if length >= 0 else b""
        if len(encoded) == length_bytes:
            return data + _UNKNOWN_BYTES_TAG + encoded + bytes(length)
        if len(encoded) < length_bytes and length >= 0:
            # A number may be written longer than it has to be.
            wide = bytearray(encoded.ljust(length_bytes, b"\0"))
            for place in range(length_bytes - 1):
                wide[place] |= 0x80
            return data + _UNKNOWN_BYTES_TAG + bytes(wide) + bytes(length)
    raise AssertionError(f"{len(data)} bytes do not grow to {size}")


def paths(message: Descriptor, *, is_wanted: Callable[[FieldDescriptor], bool]) -> list[Path]:
    """Every way to such a field."""
    found: list[Path] = []
    for field in message.fields:
        if is_wanted(field):
            found.append((field,))
        if field.message_type is not None:
            below = paths(field.message_type, is_wanted=is_wanted)
            found += [(field, *path) for path in below]
    return found


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether it holds entries."""
    return bool(field.is_repeated)


def _is_counted(field: FieldDescriptor) -> bool:
    return bool(field.GetOptions().Extensions[options_pb2.counts] == options_pb2.COUNTS_PARTITIONS)


def _is_number(field: FieldDescriptor) -> bool:
    return field.message_type is None and field.type not in _TEXTS


def _filled(
    method: MethodDescriptor, found: MethodBounds, known: Known, *, more: int
) -> Iterator[Shaped]:
    """Each repeated field at its bound and `more`, by itself."""
    for path in paths(method.input_type, is_wanted=is_repeated):
        name = ".".join(field.name for field in path)
        above = sum(field.is_repeated for field in path[:-1])
        if _is_number(path[-1]):
            count = found.bounds.numbers_max + more
            yield Shaped(name, _built(method.input_type, path, count, {}))
            continue
        count = found.bounds.elements_max - above + more
        yield Shaped(f"{name}, empty", _built(method.input_type, path, count, {}))
        data = _built(method.input_type, path, count, known)
        if len(data) <= found.bounds.bytes_max:
            yield Shaped(name, data)
        if not more:
            half = _built(method.input_type, path, max(1, count // 2), known)
            if len(half) <= found.bounds.bytes_max:
                yield Shaped(f"{name}, half", half)


def _built(message: Descriptor, path: Path, count: int, known: Known) -> bytes:
    """So many entries at the end of the path, a single one of everything on the way."""
    made = message_factory.GetMessageClass(message)()
    within = made
    _fill(within, 0, known, besides=path[0])
    for number, field in enumerate(path[:-1]):
        within = getattr(within, field.name)
        if field.is_repeated:
            within = within.add()
        else:
            within.SetInParent()
        _fill(within, 0, known, besides=path[number + 1])
    _add(within, path[-1], count, known)
    data: bytes = made.SerializeToString()
    return data


def _add(within: Any, field: FieldDescriptor, count: int, known: Known) -> None:
    entries = getattr(within, field.name)
    value = known.get(field.name)
    for number in range(count):
        if field.message_type is None:
            entries.append(_plain(field, number) if value is None else value(number))
        elif field.message_type.GetOptions().map_entry:
            entries[str(number)] = ""
        else:
            _fill(entries.add(), number, known)


def _plain(field: FieldDescriptor, number: int) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return ""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b""
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    return number % 100


def _fill(message: Any, number: int, known: Known, besides: FieldDescriptor | None = None) -> None:
    """Its single fields whose value is known; of a choice the one that is wanted is left."""
    if not known:
        return
    chosen = None if besides is None else besides.containing_oneof
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or field == besides or field.name not in known:
            continue
        if chosen is not None and field.containing_oneof == chosen:
            continue
        if field.message_type is None:
            setattr(message, field.name, known[field.name](number))
    for field in message.DESCRIPTOR.fields:
        is_single = field.message_type is not None and not field.is_repeated
        if is_single and field != besides and not field.containing_oneof and field.name in known:
            _fill(getattr(message, field.name), number, known)


def _work(method: MethodDescriptor, path: Path, work: int, entries: int, known: Known) -> Shaped:
    """So many entries that stand for so much each."""
    made = message_factory.GetMessageClass(method.input_type)()
    assert len(path) == 2, "the entries of a request say the counts"
    for number in range(entries):
        entry = getattr(made, path[0].name).add()
        _fill(entry, number, known)
        setattr(entry, path[1].name, work)
    name = ".".join(field.name for field in path)
    return Shaped(f"{entries} {name} = {work}", made.SerializeToString())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""How much a message holds, counted on the wire: before protobuf makes anything of it. Pure.

Owns the count. Two bytes of a message can become an object of hundreds, so the length of a message
says little about what it costs: its entries do, and what they stand for. The walk goes from tag to
tag, steps over whatever holds no entries, and ends with the tag that is one too many: it never
takes more steps than the bounds allow, whatever the message is. It must never let a message pass
that protobuf would read otherwise; one that cannot be walked is refused, groups included.

What is counted: an *element* is an entry of a repeated field, but for numbers; a *number* is an
entry of a list of numbers; *work* is what fields stand for that say a count, in replicas. Fields
that are not known here have a bound of their own, and so have the steps, from the shape of the
message: one within its other bounds never reaches it, unless fields are repeated that stand once.

An entry of at most `ENTRY_BYTES_LET_BE` that can hold no entries is not looked into.
"""

from typing import Final

import msgspec

from tidelog.wire.errors import ErrorCode, TidelogError

ENTRY_BYTES_LET_BE: Final = 128
UNKNOWN_FIELDS_MAX: Final = 64
"""Beside as many as the message may have elements: each of a newer caller's may carry one."""
VARINT_BYTES_MAX: Final = 10
TAG_MAX: Final = (1 << 32) - 1
REPLICAS_MAX: Final = 1 << 20
"""What one number may count for: a larger one is beyond every bound of work."""

_VARINT: Final = 0
_LENGTH: Final = 2
_FIXED: Final = {1: 8, 5: 4}
"""Wire types of so many bytes."""
_CONTINUED: Final = bytes(range(0x80, 0x100))
"""Bytes of a varint that are not its last."""


class Shape(msgspec.Struct):
    """What a message type may hold, by the tags of its fields."""

    fields: dict[int, "Field"]
    singles: int = 0
    """Fields that stand at most once, those of messages in such fields included."""
    singles_of_entry: int = 0
    """The same of the entries within, the most of them."""
    can_hold_entries: bool = False
    """Somewhere within; only then is a short one looked into."""
    counts_work: bool = False
    """A field of it says a count."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field by one of its tags."""

    shape: Shape | None = None
    """Of the messages that it holds."""
    is_element: bool = False
    is_number: bool = False
    packed_bytes: int = 0
    """Of each number of a packed list; 0: they are varints, or it is none."""
    counts_partitions: bool = False
    counts_replicas: bool = False


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Of one message of a method."""

    bytes_max: int
    elements_max: int = 0
    numbers_max: int = 0
    work_max: int = 0


class Counted(msgspec.Struct, frozen=True):
    """What a message holds."""

    elements: int = 0
    numbers: int = 0
    work: int = 0
    steps: int = 0

    @property
    def total(self) -> int:
        """All that is to be done, one thing as much as another."""
        return self.elements + self.numbers + self.work


def steps_max(bounds: Bounds, shape: Shape) -> int:
    """Tags of the largest message within the bounds."""
    entries = bounds.elements_max * (1 + shape.singles_of_entry)
    return entries + shape.singles + UNKNOWN_FIELDS_MAX


class _Walk:
    """One count of one message."""

    def __init__(self, message: bytes, bounds: Bounds, steps: int, tried: str) -> None:
        self.data = message
        self.bounds = bounds
        self.tried = tried
        self.steps_max = self.steps_left = steps
        self.elements = self.numbers = self.work = self.unknown = 0

    def walk(self, at: int, end: int, shape: Shape) -> None:
        """The fields between two places."""
        # Names of the function's own: this loop takes a step for each tag of the largest messages.
        data, field_of, steps_left = self.data, shape.fields.get, self.steps_left
        partitions = replicas = 0
        while at < end:
            steps_left -= 1
            if steps_left < 0:
                raise self.over("fields", self.steps_max + 1, self.steps_max)
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = self._varint(at - 1, end)
                if tag > TAG_MAX:
                    raise self.malformed("a field has a number beyond all")
            field = field_of(tag)
            if field is None:
                self._count_unknown()
            kind = tag & 7
            if kind == _LENGTH:
                length = data[at]
                at += 1
                if length >= 0x80:
                    length, at = self._varint(at - 1, end)
                stop = at + length
                if stop > end:
                    raise IndexError
                if field is not None:
                    self.steps_left = steps_left
                    self._take(field, at, stop)
                    steps_left = self.steps_left
                at = stop
                continue
            if kind == _VARINT:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = self._varint(at - 1, end)
                if field is None:
                    continue
                if field.is_number:
                    self._count_numbers(1)
                elif field.counts_partitions:
                    partitions += min(value, REPLICAS_MAX)
                elif field.counts_replicas:
                    replicas = max(replicas, min(value, REPLICAS_MAX))
            elif kind in _FIXED:
                at += _FIXED[kind]
                if field is not None and field.is_number:
                    self._count_numbers(1)
            else:
                raise self.malformed("it holds a group")
        self.steps_left = steps_left
        if at > end:
            raise IndexError
        if shape.counts_work:
            self._count_work(max(1, partitions) * max(1, replicas))

    def _take(self, field: Field, at: int, stop: int) -> None:
        if field.is_element:
            self.elements += 1
            if self.elements > self.bounds.elements_max:
                raise self.over("elements", self.elements, self.bounds.elements_max)
        if field.is_number:
            length = stop - at
            size = field.packed_bytes
            if not size:
                self._count_numbers(len(self.data[at:stop].translate(None, _CONTINUED)))
            else:
                self._count_numbers(length // size)
        elif field.shape is not None:
            is_long = stop - at > ENTRY_BYTES_LET_BE
            if is_long or field.shape.can_hold_entries:
                self.walk(at, stop, field.shape)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number, and where it ends."""
        value = shift = 0
        data = self.data
        for place in range(at, min(end, at + VARINT_BYTES_MAX)):
            byte = data[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place + 1
            shift += 7
        raise IndexError

    def _count_unknown(self) -> None:
        self.unknown += 1
        most = self.bounds.elements_max + UNKNOWN_FIELDS_MAX
        if self.unknown > most:
            raise self.over("fields that are not known here", self.unknown, most)

    def _count_numbers(self, count: int) -> None:
        self.numbers += count
        if self.numbers > self.bounds.numbers_max:
            raise self.over("numbers", self.numbers, self.bounds.numbers_max)

    def _count_work(self, replicas: int) -> None:
        self.work += replicas
        if self.work > self.bounds.work_max:
            raise self.over("replicas", self.work, self.bounds.work_max)

    def over(self, what: str, count: int, most: int) -> TidelogError:
        return TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=self.tried,
            happened=f"the message holds at least {count} {what}; one takes at most {most}",
            hint="Split the call: send fewer at a time.",
        )

    def malformed(self, happened: str) -> TidelogError:
        return TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=self.tried,
            happened=f"the message does not fit the contract: {happened}",
        )


def count(message: bytes, shape: Shape, bounds: Bounds, *, tried: str) -> Counted:
    """What the message holds; BATCH_TOO_LARGE or INVALID_ARGUMENT beyond the bounds."""
    if len(message) > bounds.bytes_max:
        raise TidelogError(
            ErrorCode.BATCH_TOO_LARGE,
            tried=tried,
            happened=f"the message has {len(message)} bytes; one takes at most {bounds.bytes_max}",
            hint="Split the call: send less at a time.",
        )
    steps = steps_max(bounds, shape)
    walk = _Walk(message, bounds, steps, tried)
    try:
        walk.walk(0, len(message), shape)
    except IndexError:
        raise walk.malformed("a field ends behind its message") from None
    return Counted(walk.elements, walk.numbers, walk.work, steps - walk.steps_left)

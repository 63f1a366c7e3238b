"""Typed errors as the contract's message and back."""

from collections.abc import Callable
from typing import Final, NoReturn

from google.protobuf.message import DecodeError

from tidelog.v1 import errors_pb2
from tidelog.wire.errors import ErrorCode, ReadPlace, TidelogError

ReadError = Callable[[errors_pb2.Error], TidelogError]
"""The client takes errors as what a broker said, a broker as its own."""
TEXT_CHARACTERS_MAX: Final = 1_000
"""Of each text: what a caller named may come back in it."""


def fill_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """Write the error into a part of an answer."""
    message.code = errors_pb2.ErrorCode.ValueType(int(error.code))
    message.tried = _cut(error.tried)
    message.happened = _cut(error.happened)
    message.hint = _cut(error.hint)
    message.retriable = error.retriable
    if error.go_on_at is not None:
        fill_place(message.go_on_at, error.go_on_at)


def fill_place(message: errors_pb2.ReadPlace, place: ReadPlace) -> None:
    """Write where a reader goes on into an error."""
    message.topic = _cut(place.topic)
    message.partition, message.next_offset = place.partition, place.next_offset


def read_place(message: errors_pb2.Error) -> ReadPlace | None:
    """Where a reader goes on; None: the error does not say."""
    if not message.HasField("go_on_at"):
        return None
    found = message.go_on_at
    return ReadPlace(found.topic, found.partition, found.next_offset)


def read_error(message: errors_pb2.Error) -> TidelogError:
    """Read a part of an answer; a code that this release does not know becomes UNKNOWN."""
    happened = message.happened
    try:
        code = ErrorCode(message.code)
    except ValueError:
        code = ErrorCode.UNKNOWN
        happened = f"{happened} (error code {message.code}, unknown to this release)"
    return TidelogError(
        code,
        tried=message.tried,
        happened=happened,
        hint=message.hint,
        retriable=message.retriable,
        go_on_at=read_place(message),
    )


def error_in(message: errors_pb2.Error, read: ReadError) -> TidelogError | None:
    """The error of a part of an answer; one that is not set has no code."""
    return read(message) if message.code else None


def raise_malformed(name: str, error: DecodeError | str) -> NoReturn:
    """A message that cannot be what its sender meant; nothing of it is used."""
    raise TidelogError(
        ErrorCode.INVALID_ARGUMENT,
        tried=f"read a {name}",
        happened=f"the message does not fit the contract: {error}",
        hint="The sender is faulty, of another release, or no node of Tidelog.",
    ) from None


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"

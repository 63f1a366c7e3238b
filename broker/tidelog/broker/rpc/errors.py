"""Typed errors as the contract's message."""

from typing import Final

from tidelog.v1 import errors_pb2
from tidelog.wire.errors import TidelogError

TEXT_CHARACTERS_MAX: Final = 1_000
"""Of each text: what a client named may come back in it, and an answer holds many errors."""


def fill_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """Write the error into a part of an answer."""
    message.code = errors_pb2.ErrorCode.ValueType(error.code.value)
    message.tried = _cut(error.tried)
    message.happened = _cut(error.happened)
    message.hint = _cut(error.hint)
    message.retriable = error.retriable


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"

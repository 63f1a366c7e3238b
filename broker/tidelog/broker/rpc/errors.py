"""Typed errors as the contract's message."""

from tidelog.v1 import errors_pb2
from tidelog.wire.errors import TidelogError


def fill_error(message: errors_pb2.Error, error: TidelogError) -> None:
    """Write the error into a part of an answer."""
    message.code = errors_pb2.ErrorCode.ValueType(error.code.value)
    message.tried = error.tried
    message.happened = error.happened
    message.hint = error.hint
    message.retriable = error.retriable

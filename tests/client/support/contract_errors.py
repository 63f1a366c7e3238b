"""Errors as a broker sends them, for the servers of tests."""

from tidelog.v1 import errors_pb2
from tidelog.wire.errors import CATALOGUE, ErrorCode


def error(code: ErrorCode, happened: str = "as the test wants") -> errors_pb2.Error:
    """An error as a broker sends it."""
    return errors_pb2.Error(
        code=errors_pb2.ErrorCode.ValueType(code),
        tried="serve a test",
        happened=happened,
        hint=CATALOGUE[code].remedy,
        retriable=CATALOGUE[code].retriable,
    )

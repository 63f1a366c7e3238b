"""Isolation levels of requests, as the server reads them."""

from tidelog.v1 import common_pb2
from tidelog.wire.calls.isolation import IsolationLevel
from tidelog.wire.refusals import invalid

_LEVELS = {
    common_pb2.ISOLATION_LEVEL_UNSPECIFIED: IsolationLevel.READ_UNCOMMITTED,
    common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    common_pb2.ISOLATION_LEVEL_READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}


def read_isolation(number: int, *, tried: str) -> IsolationLevel:
    """The level of a request; INVALID_ARGUMENT for one that does not exist."""
    found = _LEVELS.get(common_pb2.IsolationLevel.ValueType(number))
    if found is None:
        raise invalid(tried, f"`isolation_level` is number {number}")
    return found


def isolation_message(level: IsolationLevel) -> common_pb2.IsolationLevel.ValueType:
    """The level as a request carries it: unset where it is what unset means."""
    if level is IsolationLevel.READ_UNCOMMITTED:
        return common_pb2.ISOLATION_LEVEL_UNSPECIFIED
    return common_pb2.ISOLATION_LEVEL_READ_COMMITTED

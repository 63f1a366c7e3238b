"""What both drivers ask of a record, and of a producer's options, before anything is appended."""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.client import options as client_options
from tidelog.client.engine.accumulator import AccumulatorLimits
from tidelog.client.options import ProducerOptions
from tidelog.client.types import Headers
from tidelog.wire.errors import ErrorCode, TidelogError

TIMESTAMP_MS_MAX: Final = 1 << 62


def accumulator_limits(options: ProducerOptions) -> AccumulatorLimits:
    """What the options mean for the accumulator."""
    batch_bytes, grown_bytes = options.batch_size, options.batch_size
    if batch_bytes is None:
        batch_bytes = client_options.BATCH_BYTES_DEFAULT
        grown_bytes = client_options.BATCH_BYTES_GROWN
    assert grown_bytes is not None, "a given batch_size does not grow"
    limit = options.max_request_size
    return AccumulatorLimits(
        batch_bytes=min(batch_bytes, limit),
        batch_bytes_max=min(grown_bytes, limit),
        buffer_bytes=options.buffer_memory,
        linger_ns=int(options.linger_ms * 1_000_000),
        in_flight_max=options.max_in_flight_requests_per_connection,
    )


def as_bytes(value: object, name: str) -> bytes:
    """Key or value as bytes, or a TypeError that names the serializer."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    raise TypeError(
        f"a {name} of type {type(value).__name__} needs a serializer: give the producer a "
        f"{name}_serializer, such as {name}_serializer=str.encode, or send bytes"
    )


def checked_headers(headers: Sequence[tuple[Any, Any]]) -> Headers:
    """Headers as they are sent."""
    for name, content in headers:
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(
                f"a header is (str, bytes), not ({type(name).__name__}, {type(content).__name__})"
            )
    return tuple(headers)


def too_large(topic: str, size_bytes: int, limit: int) -> TidelogError:
    """Of a record that fits no request."""
    return TidelogError(
        ErrorCode.BATCH_TOO_LARGE,
        tried=f"produce to {topic}",
        happened=f"the record takes up to {size_bytes} bytes, max_request_size is {limit}",
        hint="send smaller records, or raise max_request_size",
    )


def bad_timestamp(topic: str, timestamp_ms: int) -> TidelogError:
    """Of a time before 1970 or beyond what a record holds."""
    return TidelogError(
        ErrorCode.INVALID_TIMESTAMP,
        tried=f"produce to {topic}",
        happened=f"timestamp_ms={timestamp_ms} is not a time in milliseconds since 1970",
    )

"""What both drivers ask of a record, and of a producer's options, before anything is appended.

What passes here can be encoded: a record that cannot be is refused to its sender, and never meets
the thread that sends everybody's.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from tidelog.client.arguments import options as client_options
from tidelog.client.arguments.kinds import (
    anything,
    is_a,
    many,
    pair_of,
    shown,
    text,
    whole,
    wrong_type,
)
from tidelog.client.arguments.options import ProducerOptions
from tidelog.client.engine.produce.accumulator import AccumulatorLimits
from tidelog.client.errors import ArgumentTypeError
from tidelog.client.types.records import Headers
from tidelog.wire.errors import ErrorCode, TidelogError

_log = logging.getLogger("tidelog.client")
TIMESTAMP_MS_MAX: Final = 1 << 62
TIMESTAMP_MS_CLEAR: Final = 10**10
"""From here on, April 1970, nobody can have meant seconds."""
_SECONDS_MIN: Final = 10**8
"""1973, in seconds."""
_PRODUCE: Final = "produce"
_HEADERS: Final = many(anything, "(name, bytes) pairs")
_NAME: Final = text("a header's name", bytes_max=TIMESTAMP_MS_MAX)
_TIME: Final = whole(-(1 << 80), 1 << 80, "a time in milliseconds since 1970")


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


def as_bytes(value: Any, name: str, argument: str = "", *, is_serialized: bool = False) -> bytes:
    """Key or value as bytes, or a TypeError that names the serializer, also one that made it."""
    try:
        if is_a(value, bytes, bytearray):
            return bytes(value)
        if is_a(value, memoryview):
            return bytes(value.tobytes())
    except ValueError as error:
        raise wrong_type(_PRODUCE, name, value, "bytes") from error
    kind = type(value).__name__
    as_json = f"lambda {name}: json.dumps({name}).encode()"
    if is_serialized:
        raise ArgumentTypeError(
            tried=_PRODUCE,
            happened=f"{name}_serializer returned {shown(value)} of type {kind}, it has to return "
            "bytes",
            hint=f"let it encode what it returns, such as {name}_serializer={as_json}",
        )
    example = "str.encode" if isinstance(value, str) else as_json
    given = argument or name
    raise ArgumentTypeError(
        tried=_PRODUCE,
        happened=f"{given} is {shown(value)}: a {name} of type {kind} needs a serializer",
        hint=f"give the producer a {name}_serializer, such as {name}_serializer={example}, or "
        f"send bytes as {name}",
    )


def checked_headers(headers: Iterable[Any]) -> Headers:
    """Headers as they are sent."""
    if not isinstance(headers, list | tuple):
        headers = _HEADERS(headers, _PRODUCE, "headers")
    return tuple(_header(each, at) for at, each in enumerate(headers))


def _header(given: Any, at: int) -> tuple[str, bytes | None]:
    name = f"headers[{at}]"
    key, content = pair_of(given, _PRODUCE, name, "a (str, bytes) pair")
    if content is not None and not isinstance(content, bytes):
        raise wrong_type(_PRODUCE, f"{name}[1]", content, "bytes or None: a header is (str, bytes)")
    return _NAME(key, _PRODUCE, f"{name}[0]"), content


def checked_time(topic: str, timestamp_ms: object) -> int:
    """A record's time as it is sent; only what is not clearly one needs to come here."""
    found: int = _TIME(timestamp_ms, f"produce to {topic}", "timestamp_ms")
    if not 0 <= found < TIMESTAMP_MS_MAX:
        raise bad_timestamp(topic, found)
    return found


class SecondsWatch:
    """Says once for a producer that its times look like seconds: nothing else would."""

    def __init__(self) -> None:
        self._has_spoken = False

    def look(self, topic: str, timestamp_ms: int | None) -> None:
        """At the oldest time of a call."""
        is_odd = timestamp_ms is not None and _SECONDS_MIN <= timestamp_ms < TIMESTAMP_MS_CLEAR
        if not is_odd or self._has_spoken:
            return
        self._has_spoken = True
        _log.warning(
            "produce to %s: timestamp_ms=%s is a time in 1970, and would be one of our days in "
            "seconds; it is stored as it is, and retention by age deletes the record soon (hint: "
            "milliseconds are int(time.time() * 1000))",
            topic,
            timestamp_ms,
        )


def warn_of_seconds(timestamps: Iterable[int], tried: str) -> None:
    """Times to look for that would be days of ours in seconds: as milliseconds all are later."""
    for each in timestamps:
        if _SECONDS_MIN <= each < TIMESTAMP_MS_CLEAR:
            _log.warning(
                "%s: %s is a time in 1970, and would be one of our days in seconds: every record "
                "is later (hint: milliseconds are int(time.time() * 1000))",
                tried,
                each,
            )
            return


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
        hint="milliseconds are int(time.time() * 1000); leave timestamp_ms out for the present",
    )

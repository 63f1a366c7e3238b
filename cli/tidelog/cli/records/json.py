"""`consume --json`: a record as one line of JSON. Pure.

Owns the field names. Bytes that are UTF-8 become text; others `{"base64": "..."}`, so that nothing
is lost and a text is never mistaken for them.
"""

import base64
import json
from collections.abc import Sequence

from tidelog.cli.records.format import Record


def render(topic: str, partition: int, records: Sequence[Record]) -> bytes:
    """A line for each record."""
    return b"".join(_line(topic, partition, record) for record in records)


def _line(topic: str, partition: int, record: Record) -> bytes:
    offset, timestamp_ms, timestamp_type, key, value, headers = record
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "timestamp_type": "append" if timestamp_type else "create",
        "key": _text(key),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}

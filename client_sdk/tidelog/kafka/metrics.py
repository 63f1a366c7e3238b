"""Counters in the shape of kafka-python's metrics(): group, then name, then value.

Owns the names. Those that kafka-python has as well mean the same; the rest are Tidelog's own.
"""

from collections.abc import Mapping
from typing import Final

_KAFKAS: Final = {
    "records_sent": "record-send-total",
    "bytes_sent": "byte-total",
    "requests_sent": "request-total",
    "records_read": "records-consumed-total",
    "bytes_received": "bytes-consumed-total",
}


def shown(group: str, counters: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """One group of them."""
    return {
        group: {
            _KAFKAS.get(name, name.replace("_", "-")): value for name, value in counters.items()
        }
    }

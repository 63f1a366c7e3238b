"""Whether the cluster answers, found out while a client is made: kafka-python connects there too.

Owns the one call that does it. It must never wait longer than bootstrap_timeout_ms.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from tidelog.client import AdminClient
from tidelog.client.arguments.options import AdminOptions
from tidelog.kafka.shared.translation import translating


class Closable(Protocol):
    """A client that was made."""

    def close(self) -> None:
        """It is not needed after all."""


def reach(arguments: Mapping[str, Any], timeout_ms: int | None = None) -> None:
    """Raise NoBrokersAvailable, which names each address and what is wrong with it, in time."""
    names = AdminOptions.__struct_fields__
    wanted: dict[str, Any] = {name: arguments[name] for name in names if name in arguments}
    if timeout_ms is not None:
        wanted["bootstrap_timeout_ms"] = timeout_ms
    with translating(), AdminClient(**wanted) as admin:
        admin.describe_cluster()


def reach_or_close(client: Closable, arguments: Mapping[str, Any]) -> None:
    """The same while a client is made: one that nobody gets is closed."""
    try:
        reach(arguments)
    except BaseException:
        client.close()
        raise

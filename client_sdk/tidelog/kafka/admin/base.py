"""What every call of KafkaAdminClient stands on: the client, and errors as Kafka's numbers.

Owns the client and how outcomes become the dicts that kafka-python makes of Kafka's answers.
"""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from tidelog.client import AdminClient
from tidelog.client.arguments import kinds
from tidelog.client.arguments.kinds import is_a
from tidelog.kafka import errors
from tidelog.kafka.shared.translation import translated, translating
from tidelog.wire.errors import ErrorCode, TidelogError

SPECIAL: Final = {ErrorCode.INVALID_CONFIGURATION: errors.InvalidConfigurationError}
"""A setting of a topic, not of this client."""


class AdminBase:
    """One client for all of them."""

    _client: AdminClient


def listed(given: Any, name: str) -> list[Any]:
    """The values of a list; a text is one value, never its letters."""
    if is_a(given, str, bytes) or not is_a(given, Iterable):
        raise TypeError(f"{name} must be a list, not {type(given).__name__} (hint: [{name}])")
    with translating():
        return kinds.listed(given, "use KafkaAdminClient", name)


def outcome_of(error: TidelogError | None) -> dict[str, Any]:
    """Kafka's number and text; 0 and None: it was done."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    kind = type(translated(error, SPECIAL))
    return {"error_code": getattr(kind, "errno", None) or -1, "error_message": str(error)}


def raise_first(outcomes: Iterable[object], *, raise_errors: bool) -> None:
    """As kafka-python does: the others are done all the same."""
    for outcome in outcomes:
        if raise_errors and isinstance(outcome, TidelogError):
            raise translated(outcome, SPECIAL) from outcome


def uuid_of(topic_id: bytes) -> str | None:
    """As kafka-python shows ids of topics."""
    return str(UUID(bytes=topic_id)) if len(topic_id) == 16 else None

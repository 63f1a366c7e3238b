"""The `kafka.*` options: settings of Kafka's consumer, which its connector passes on.

Owns what becomes of each: taken, where it means the same here; refused, where leaving it out would
change what is read or who may listen; otherwise named once in a warning.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidelog.spark.option_values import (
    INT_MAX,
    given_text,
    not_yet,
    parse_bool,
    parse_count,
    refused,
)

PREFIX: Final = "kafka."

_COUNTS: Final = {
    "kafka.default.api.timeout.ms": "default_api_timeout_ms",
    "kafka.fetch.max.bytes": "fetch_max_bytes",
    "kafka.max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "kafka.metadata.max.age.ms": "metadata_max_age_ms",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.retry.backoff.max.ms": "retry_backoff_max_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
}
_TEXTS: Final = {"kafka.client.id": "client_id", "kafka.client.rack": "client_rack"}
_CHECK_CRCS: Final = "kafka.check.crcs"
_ISOLATION: Final = "kafka.isolation.level"
_PROTOCOL: Final = "kafka.security.protocol"

TAKEN: Final = (*_COUNTS, *_TEXTS, _CHECK_CRCS, _ISOLATION, _PROTOCOL)

_OURS_TO_SET: Final = {
    "kafka.auto.offset.reset": "say where to begin with startingOffsets",
    "kafka.enable.auto.commit": "Spark's checkpoint holds how far it has read",
    "kafka.interceptor.classes": "there are none here",
    "kafka.key.deserializer": "keys are bytes: decode them with Spark's functions",
    "kafka.value.deserializer": "values are bytes: decode them with Spark's functions",
}
"""Kafka's connector refuses these as well."""

_NOT_IGNORED: Final = ("kafka.sasl.", "kafka.ssl.")
"""Whoever asks for a secured connection is not given an open one."""

_ADMINS: Final = (
    "client_id",
    "metadata_max_age_ms",
    "request_timeout_ms",
    "retry_backoff_max_ms",
    "retry_backoff_ms",
)


class ClientSettings(msgspec.Struct, frozen=True):
    """Arguments of the SDK's clients that the options give."""

    arguments: tuple[tuple[str, Any], ...] = ()

    def for_consumer(self) -> dict[str, Any]:
        """All of them."""
        return dict(self.arguments)

    def for_admin(self) -> dict[str, Any]:
        """Those that a client that only looks up has as well."""
        return {name: value for name, value in self.arguments if name in _ADMINS}


def parse_client(given: Mapping[str, str]) -> ClientSettings:
    """What is taken; `given` has names in small letters."""
    found: dict[str, Any] = {}
    for option, name in _COUNTS.items():
        count = parse_count(given, option, most=INT_MAX)
        if count is not None:
            found[name] = count
    for option, name in _TEXTS.items():
        text = given_text(given, option)
        if text is not None:
            found[name] = text
    if _CHECK_CRCS in given:
        found["check_crcs"] = parse_bool(given, _CHECK_CRCS, default=True)
    _check_isolation(given)
    _check_protocol(given)
    return ClientSettings(tuple(sorted(found.items())))


def check_name(name: str) -> bool:
    """Whether a `kafka.*` option means something; raises for those that cannot be left out."""
    small = name.lower()
    if small in _OURS_TO_SET:
        raise refused(name, "this source sets it itself", _OURS_TO_SET[small])
    if small.startswith(_NOT_IGNORED):
        raise not_yet(name)
    return small in TAKEN


def _check_isolation(given: Mapping[str, str]) -> None:
    level = given_text(given, _ISOLATION)
    if level == "read_committed":
        raise not_yet(_ISOLATION, "this release has no transactions")
    if level not in (None, "read_uncommitted"):
        raise refused(_ISOLATION, f"there is no level {level!r}", "write read_uncommitted")


def _check_protocol(given: Mapping[str, str]) -> None:
    protocol = given_text(given, _PROTOCOL)
    if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise not_yet(_PROTOCOL)
    if protocol not in (None, "PLAINTEXT"):
        raise refused(_PROTOCOL, f"there is no protocol {protocol!r}", "write PLAINTEXT")

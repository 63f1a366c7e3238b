"""From a script's configuration to the arguments of Tidelog's clients.

Owns what is honoured, warned about and refused, by the verdicts of `option_table`. It must never
take an option in silence that it cannot honour, nor warn twice about one.
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

from tidelog.client.arguments.functions import is_async_function
from tidelog.client.arguments.kinds import shown
from tidelog.kafka.errors import KafkaConfigurationError, UnrecognizedConfigError
from tidelog.kafka.shared.option_table import Option, Verdict
from tidelog.wire.nearest import nearest_name

RETRIES_MAX: Final = 2_147_483_647
_PACKAGE: Final = "tidelog.kafka"


class KafkaOptionWarning(UserWarning):
    """An option of kafka-python that is accepted and has no effect here."""


def honoured(
    client: str, table: Mapping[str, Option], configs: Mapping[str, Any]
) -> dict[str, Any]:
    """What is left for the client; every other option was warned about, or is refused here."""
    for name, value in configs.items():
        if name not in table:
            raise _unknown(client, name, table)
        if table[name].verdict is Verdict.REFUSED and not _asks_nothing(table[name], value):
            raise _refused(client, name, table[name].why)
    given: dict[str, Any] = {}
    for name, value in configs.items():
        option = table[name]
        if option.verdict is Verdict.HONOURED:
            given[name] = _whole(value)
        elif option.verdict is Verdict.WARNED and not _asks_nothing(option, value):
            _warn(client, name, value, option.why)
    _check_protocol(client, given)
    retries = given.get("retries")
    if isinstance(retries, float) and retries == float("inf"):
        given["retries"] = RETRIES_MAX
    return given


def without_none(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """kafka-python takes None for "the default" where the client wants the option left out."""
    return {name: value for name, value in given.items() if value is not None or name not in names}


def _whole(value: Any) -> Any:
    """kafka-python takes 3e4 where a whole number is meant."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _asks_nothing(option: Option, value: Any) -> bool:
    try:
        return value is None or bool(value == option.default)
    except Exception:  # noqa: BLE001 - whatever the value's own code raises: it is no default
        return False


def function_of(client: str, name: str, given: Any, method: str) -> Any:
    """The function of an option that takes one, or an object with this method; None: none."""
    if given is None:
        return None
    found = None if isinstance(given, str | bytes | bytearray) else getattr(given, method, given)
    if not callable(found) or is_async_function(found):
        raise KafkaConfigurationError(
            f"make a {client}: {name} is {shown(given)}, it can be a plain function or an object "
            f"with {method}()"
        )
    return found


def _check_protocol(client: str, given: Mapping[str, Any]) -> None:
    protocol = given.get("security_protocol")
    if isinstance(protocol, str) and protocol.startswith("SASL"):
        raise KafkaConfigurationError(
            f"make a {client}: security_protocol={protocol!r} needs SASL, which Tidelog does not "
            "have (hint: use SSL, with ssl_certfile for clients that prove who they are)"
        )


def _unknown(client: str, name: str, table: Mapping[str, Option]) -> UnrecognizedConfigError:
    nearest = nearest_name(name, table)
    hint = f"did you mean {nearest}?" if nearest else "docs/migrating-from-kafka.md lists them"
    return UnrecognizedConfigError(f"Unrecognized configs: {name!r} of {client} (hint: {hint})")


def _refused(client: str, name: str, why: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(
        f"make a {client}: {name} cannot be honoured, and going on without it would not be what "
        f"you asked for: {why} (hint: leave {name} out)"
    )


def _warn(client: str, name: str, value: Any, why: str) -> None:
    message = f"{client}: {name}={shown(value)} has no effect: {why}"
    warnings.warn(message, KafkaOptionWarning, stacklevel=_depth_of_script())


def _depth_of_script() -> int:
    """How far up the first caller outside this package stands: the warning shows his line."""
    depth = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
        depth += 1
    return depth

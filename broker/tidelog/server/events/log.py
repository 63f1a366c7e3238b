"""Structured lines on stderr: `time level event key=value …`, with event names that stay.

Tools and tests match on event names; the values after them may grow.
"""

import json
import logging
import sys
from typing import Final

from tidelog.broker.shared.visible import escaped

_LOGGER: Final = logging.getLogger("tidelog")


def set_up(level: int = logging.INFO) -> None:
    """Send this process's lines to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False


def info(event: str, **values: object) -> None:
    """Something that an operator may want to know."""
    _LOGGER.info("%s", _line(event, values))


def warning(event: str, **values: object) -> None:
    """Something that an operator should look at."""
    _LOGGER.warning("%s", _line(event, values))


def error(event: str, **values: object) -> None:
    """Something that an operator must act on."""
    _LOGGER.error("%s", _line(event, values))


def _line(event: str, values: dict[str, object]) -> str:
    return " ".join([event, *(f"{key}={_text(value)}" for key, value in values.items())])


def _text(value: object) -> str:
    text = str(value)
    is_plain = bool(text) and text.isprintable() and not any(each in ' "=' for each in text)
    return text if is_plain else escaped(json.dumps(text, ensure_ascii=False))

"""What the client says of a mistake, in the words of the command that was typed.

Owns the translation: the client names its calls and options to somebody who writes Python, and
whoever typed a command has called none of them. It must never import a room of Tidelog.
"""

import re
from typing import Final

_CALL: Final = re.compile(r"\bcall \w+\.\w+\(\)")
"""What was tried, as the client tells it."""
PYTHON: Final = re.compile(r"\b(?:Admin|Async\w*)Client\b|\b(?:\w+\.)*\w+\([^()]*\)(?:\.\w+\(\))?")
"""A name of the client, or a call: `flush()`, `int(time.time() * 1000)`."""
_SENTENCES: Final = (
    (
        "check bootstrap_servers (or TIDELOG_BOOTSTRAP) and that a node runs there",
        "check -b HOST:PORT (or TIDELOG_BOOTSTRAP), or start a node: tidelog dev",
    ),
    (
        "milliseconds are int(time.time() * 1000)",
        "`date +%s%3N` prints the present in them",
    ),
)


def told(what: str, why: str, hint: str, command: str) -> tuple[str, str, str]:
    """The three lines of an error; `command` is what was typed, without `tidelog`."""
    return of_attempt(what, command), of_cause(why), of_hint(hint, command)


def of_attempt(text: str, command: str) -> str:
    """What was tried: the command itself, where the client names a call of its own."""
    return _without_calls(_CALL.sub(f"tidelog {command}", text))


def of_cause(text: str) -> str:
    """What happened."""
    return _without_calls(_translated(text))


def of_hint(text: str, command: str) -> str:
    """What to do: where the client has a call to offer, the command has its help."""
    told = _translated(text)
    return f"tidelog {command} --help" if _named(told) else told


def _translated(text: str) -> str:
    for python, ours in _SENTENCES:
        text = text.replace(python, ours)
    return text


def _named(text: str) -> list[str]:
    """Calls and classes of the client in a text; `fsync(2)` and "a word (aside)" are neither."""
    found = [match.group() for match in PYTHON.finditer(text)]
    return [each for each in found if not re.fullmatch(r"\w+\(\d\)", each)]


def _without_calls(text: str) -> str:
    for each in dict.fromkeys(_named(text)):
        text = text.replace(each, "the client")
    return text

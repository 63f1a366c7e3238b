"""How long a command waits for the cluster: a person sits before it, or a script on a busy machine.

Owns the two defaults and the variable that replaces both. What takes long by its nature, such as
moving replicas, has bounds of its own.
"""

import os
from typing import Final

from tidelog.cli.show.errors import BadInput

VARIABLE: Final = "TIDELOG_TIMEOUT_MS"
_REACH_MS: Final = 3_000
"""A person waits: an address that nobody answers at is reported after that long."""
_ANSWER_MS: Final = 10_000
"""The same for a quorum that has no leader; an election takes two seconds."""
_LONGEST_MS: Final = 24 * 60 * 60 * 1000


def reach_timeout_ms() -> int:
    """For an address that nobody has answered at yet."""
    return _given_ms() or _REACH_MS


def answer_timeout_ms() -> int:
    """For one answer of a cluster that was reached."""
    return _given_ms() or _ANSWER_MS


def _given_ms() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= _LONGEST_MS:
        raise BadInput(
            f"{VARIABLE}={text}",
            f"it is no whole number from 1 to {_LONGEST_MS:,}",
            "give the milliseconds that a command may wait, such as 60000, or unset it",
        )
    return int(text)

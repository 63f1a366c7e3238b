"""Calls that any node may answer: how long one address is waited for before the next one is asked.

Owns the limits and the words for both drivers. It must never let a call that changes something be
with two nodes at a time.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.client.engine.cluster.tries import Doubt
from tidelog.client.errors import LostAnswerError, NoAnswerError, PeerError, is_lost
from tidelog.wire.errors import ErrorCode, TidelogError

ADDRESS_TIMEOUT_MS: Final = 3_000
"""How long one address may stay silent before the next one is asked instead."""
HEDGE_MS: Final = 250
"""How long an address that never answered may stay silent before the next one is asked beside it,
if the call only reads: it may be one that swallows everything."""
_NOBODY_HINT: Final = "check bootstrap_servers (or TIDELOG_BOOTSTRAP) and that a node runs there"
_READS: Final = ("Get", "Find", "List", "Describe", "Plan")
"""How the methods begin that two nodes may work at without harm."""

Answer = bytes | TidelogError
OnAnswer = Callable[[Answer], None]
OnFailure = Callable[[TidelogError], None]
"""Told of each address that has failed, also where another one answers then."""


def nobody_is_told(error: TidelogError) -> None:
    """For calls that change nothing: what an address has failed with is forgotten."""
    del error


def only_reads(method: str) -> bool:
    """Whether it does no harm to have two nodes work at the same call."""
    return method.rpartition("/")[2].startswith(_READS)


def doubt_of(
    tried: str, method: str, *, may_repeat: bool, validate_only: bool = False
) -> Doubt | None:
    """Of a call that changes something; None: this one only reads."""
    if validate_only or only_reads(method):
        return None
    return Doubt(tried, may_repeat=may_repeat)


def all_failed(errors: Sequence[tuple[str, TidelogError]]) -> TidelogError:
    """Every address was asked, and why none of them could help."""
    if all(not error.retriable for _, error in errors):
        return errors[-1][1]
    reasons = "; ".join(
        error.happened if error.happened.startswith(address) else f"{address}: {error.happened}"
        for address, error in errors
    )
    make: type[TidelogError] = TidelogError
    if all(isinstance(error, NoAnswerError) for _, error in errors):
        make = NoAnswerError
    elif any(is_lost(error) for _, error in errors):
        make = LostAnswerError
    # A broker that answered is there, and knows better than its client what is missing.
    told = [error.hint for _, error in errors if isinstance(error, PeerError) and error.hint]
    return make(
        ErrorCode.UNAVAILABLE,
        tried="reach the cluster",
        happened=reasons,
        hint=told[-1] if told else _NOBODY_HINT,
    )

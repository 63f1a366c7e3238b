"""Whose clock is off when a broker refuses records for their times: the broker's, or the sender's.

Owns the rule. A record that is of the present by this client's clock is not wrong by itself: the
broker that leads the partition now has a clock that is off, and another may lead soon, or somebody
sets it right. It is sent again, until the delivery timeout. A time that the user gave and that is
not the present stays refused for good.
"""

from typing import Final

from tidelog.client.engine.produce.batch import Batch, Outcome
from tidelog.client.engine.produce.settings import ProducerSettings
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.moments import moment

PRESENT_MS: Final = 60_000
"""How far off this client's clock a time may be and still be the present: the clock may have been
set meanwhile."""


class ClocksDisagree(TidelogError):
    """INVALID_TIMESTAMP of records that are of the present here: worth another try."""

    @property
    def retriable(self) -> bool:
        """Another leader, or the same with its clock set right, takes them."""
        return True


def judged_by_own_clock(
    batch: Batch, outcome: Outcome, wall_ms: int, settings: ProducerSettings
) -> Outcome:
    """The same, or, if a broker's clock stands against this one, an error that may be retried.

    `wall_ms` is what this client's clock shows; 0: not known. A batch that was given up meanwhile
    has no records any more.
    """
    if not isinstance(outcome, TidelogError) or outcome.code is not ErrorCode.INVALID_TIMESTAMP:
        return outcome
    times_ms = batch.columns.timestamps
    is_of_now = bool(times_ms) and (
        max(times_ms) <= wall_ms + PRESENT_MS
        and min(times_ms) >= wall_ms - settings.delivery_timeout_ms - PRESENT_MS
    )
    if not wall_ms or not is_of_now:
        return outcome
    return ClocksDisagree(
        outcome.code,
        tried=outcome.tried,
        happened=f"{outcome.happened}; by this client's clock, which shows {moment(wall_ms)}, the "
        "records are of the present",
        hint="set right the clock that is off: `tidelog cluster describe` shows the brokers'",
    )

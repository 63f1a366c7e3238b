"""When a background job that failed is tried again. Pure.

Owns the pauses: doubled with each failure in a row, up to a limit, for each target by itself, so
that one bad segment holds up nothing else. It must never give a target up.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import msgspec

from tidelog.broker.housekeeping.core.limits import HousekeepingLimits

T = TypeVar("T", bound=Hashable)
_DOUBLINGS_MAX: Final = 40


class _Failed(msgspec.Struct, frozen=True):
    """One target."""

    failures: int
    not_before_ms: int


class Retries(Generic[T]):
    """Only targets that have failed are known here."""

    def __init__(self, limits: HousekeepingLimits) -> None:
        self._first_ms = limits.retry_backoff_ms
        self._longest_ms = limits.retry_backoff_max_ms
        self._failed: dict[T, _Failed] = {}

    def __len__(self) -> int:
        return len(self._failed)

    def may_try(self, target: T, now_ms: int) -> bool:
        """Whether its pause is over."""
        failed = self._failed.get(target)
        return failed is None or now_ms >= failed.not_before_ms

    def on_failure(self, target: T, now_ms: int) -> int:
        """It failed (again); how many times in a row."""
        before = self._failed.get(target)
        failures = 1 if before is None else before.failures + 1
        pause_ms = min(self._first_ms << min(failures - 1, _DOUBLINGS_MAX), self._longest_ms)
        self._failed[target] = _Failed(failures, now_ms + pause_ms)
        return failures

    def on_success(self, target: T) -> None:
        """The count begins anew."""
        self._failed.pop(target, None)

    def next_ms(self) -> int | None:
        """When the first pause is over; None: nothing has failed."""
        return min((each.not_before_ms for each in self._failed.values()), default=None)

    def keep(self, is_there: Callable[[T], bool]) -> None:
        """Forget targets that are gone."""
        self._failed = {each: value for each, value in self._failed.items() if is_there(each)}

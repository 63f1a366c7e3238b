"""Every check of what clients of a cluster saw: one call for simulated and live runs.

The input is a `History`: sends and polls that clients wrote down, and what excuses a partition.
docs/simulation.md says what each check means. It knows nothing of a broker.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from tidelog.chaos.checkers.history.history import Anomaly, Excuse, History, Loss
from tidelog.chaos.checkers.history.inquiries import end_behind, refused_kept
from tidelog.chaos.checkers.history.loss import lost_write, torn_batch, unseen, vanished
from tidelog.chaos.checkers.history.offsets import (
    duplicate,
    fresh_offset,
    inconsistent_offsets,
    misplaced,
    reused_offset,
)
from tidelog.chaos.checkers.history.parts import kept_part, part_after, part_before
from tidelog.chaos.checkers.history.reads import (
    aborted_read,
    beyond_watermark,
    ext_nonmonotonic_poll,
    ext_poll_skip,
    from_nowhere,
    int_nonmonotonic_poll,
    int_poll_skip,
)
from tidelog.chaos.checkers.history.recovery import recovery
from tidelog.chaos.checkers.history.sends import (
    ext_nonmonotonic_send,
    int_nonmonotonic_send,
    int_send_skip,
    overtaken,
    reordered,
)
from tidelog.chaos.checkers.history.view import Found, PartitionView, views_of

ANOMALIES_MAX: Final = 5
"""Of one check in one partition."""

Check = Callable[[PartitionView], Found]

OF_ANY: Final[tuple[Check, ...]] = (
    from_nowhere,
    aborted_read,
    int_nonmonotonic_poll,
    beyond_watermark,
    int_send_skip,
    int_nonmonotonic_send,
)
"""Hold also where more copies were lost than the settings can do without."""

OF_WHOLE: Final[tuple[Check, ...]] = (
    inconsistent_offsets,
    duplicate,
    reused_offset,
    misplaced,
    fresh_offset,
    vanished,
    torn_batch,
    int_poll_skip,
    ext_poll_skip,
    ext_nonmonotonic_poll,
    ext_nonmonotonic_send,
    reordered,
    overtaken,
    refused_kept,
    end_behind,
)

OF_KEPT: Final[tuple[Check, ...]] = (lost_write, unseen)
"""Hold where everything is drained at the end."""

OF_PART: Final[tuple[Check, ...]] = (inconsistent_offsets, reused_offset, fresh_offset)
"""Hold of what lies below an excused loss, of what was over before it, of what began after it."""

HISTORY_CHECKS: Final = (*OF_ANY, *OF_WHOLE, *OF_KEPT)


def check_clients(history: History, *, recovery_bound_ns: int | None = None) -> list[Anomaly]:
    """Run every check on every partition, as far as its excuse allows."""
    anomalies: list[Anomaly] = []
    for view in views_of(history):
        anomalies += _found(view, _checks(view, recovery_bound_ns))
        if view.excuse is Excuse.LOST and view.loss is not None:
            for part, checks in _parts(view, view.loss):
                anomalies += _found(part, [(check.__name__, check) for check in checks])
    return anomalies


def _found(view: PartitionView, checks: list[tuple[str, Check]]) -> list[Anomaly]:
    return [
        Anomaly(name, view.partition, detail)
        for name, check in checks
        for detail in islice(check(view), ANOMALIES_MAX)
    ]


def _parts(view: PartitionView, loss: Loss) -> Iterator[tuple[PartitionView, tuple[Check, ...]]]:
    """What an excused loss does not cover, and what holds there."""
    is_drained = view.drained is not None
    kept = OF_KEPT if is_drained else ()
    yield kept_part(view, loss.kept), (*OF_PART, misplaced, *kept, vanished)
    yield part_before(view, loss.began_ns), OF_WHOLE
    if loss.ended_ns is not None:
        yield part_after(view, loss.ended_ns), (*OF_PART, *kept, vanished)


def _checks(view: PartitionView, recovery_bound_ns: int | None) -> list[tuple[str, Check]]:
    checks = list(OF_ANY)
    if view.excuse is not Excuse.LOST:
        checks += OF_WHOLE
    if view.excuse is None:
        checks += OF_KEPT
    named: list[tuple[str, Check]] = [(check.__name__, check) for check in checks]
    if recovery_bound_ns is not None and view.excuse is not Excuse.DELETED:
        named.append(("recovery", partial(recovery, bound_ns=recovery_bound_ns)))
    return named

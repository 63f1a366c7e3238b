"""What a streaming query reads next.

Owns the pinned start, the end of an AvailableNow run, and the rule that an end never moves back. It
runs in one long-lived process at the driver; errors that may pass are retried by the SDK beneath,
since an exception here ends the query.
"""

from tidelog.spark.cluster import Cluster
from tidelog.spark.offsets import (
    INITIAL,
    Progress,
    SourceOffset,
    from_json,
    is_initial,
    to_json,
)
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import (
    OffsetRange,
    check_nothing_lost,
    has_new_partitions,
    limit_rows,
    never_back,
    plan_ranges,
    split_ranges,
    with_new_partitions,
)


class StreamPlanner:
    """Driver side of one streaming query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Cluster | None = None
        self._fixed_end: Progress | None = None
        self._last_seen: Progress | None = None

    def initial_offset(self) -> dict[str, object]:
        """The same whenever it is asked."""
        return dict(INITIAL)

    def latest_offset(self, start: dict[str, object], max_rows: int | None) -> dict[str, object]:
        """The first call pins the real start as an empty batch; later ones move on from it."""
        if is_initial(start):
            base = self._cluster().resolve_start()
            return to_json(SourceOffset(progress=base, base=base))
        begun = from_json(start).progress
        target = self._fixed_end if self._fixed_end is not None else self._cluster().latest()
        self._last_seen = target
        if self._options.fail_on_data_loss:
            check_nothing_lost(begun, target)
        complete = with_new_partitions(begun, self._beginnings(begun, target))
        latest = never_back(complete, target)
        if max_rows is not None:
            latest = limit_rows(complete, latest, max_rows)
        if not plan_ranges(complete, latest):
            return start
        return to_json(SourceOffset(progress=latest))

    def fix_end(self) -> None:
        """From now on nothing beyond what is there now is planned."""
        self._fixed_end = self._cluster().latest()

    def report_latest_offset(self) -> dict[str, object] | None:
        """What was last seen in the cluster, without asking again."""
        if self._last_seen is None:
            return None
        return to_json(SourceOffset(progress=self._last_seen))

    def plan(self, start: dict[str, object], end: dict[str, object]) -> list[OffsetRange]:
        """The ranges between two offsets; the same for a batch that is run again."""
        ended = from_json(end)
        if is_initial(start):
            begun = ended.base if ended.base is not None else ended.progress
        else:
            begun = from_json(start).progress
        complete = with_new_partitions(begun, self._beginnings(begun, ended.progress))
        return split_ranges(plan_ranges(complete, ended.progress), self._options.min_partitions)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _beginnings(self, begun: Progress, ended: Progress) -> Progress:
        """First kept offsets, asked for only if a partition is new since `begun`."""
        return self._cluster().earliest() if has_new_partitions(begun, ended) else {}

    def _cluster(self) -> Cluster:
        if self._opened is None:
            self._opened = Cluster(self._options)
        return self._opened

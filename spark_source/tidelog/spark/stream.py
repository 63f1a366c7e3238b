"""What a streaming query reads next.

Owns the pinned start, the end of an AvailableNow run, the rule that an end never moves back, and
the comparison of what was read with what is there. It runs in one long-lived process at the driver;
errors that may pass are retried by the SDK beneath, since an exception here ends the query.

Theory of operation. Each call looks at the cluster anew: topic ids, ends, and the leader epochs of
the last records. A topic with another id, an end below what was read, or a leader that says that
its log parts from what was read: these are losses. With failOnDataLoss they end the query. Without
it they are told, and the query goes on: behind a truncation at the place where the logs part, in a
topic that was created again at its beginning. Where a batch begins elsewhere than its predecessor
ended, its end offset says so (its *base*), so that a batch that is run again is the same.
"""

from typing import Protocol

from tidelog.client import TopicPartition
from tidelog.spark.cluster import Cluster, View, check_named
from tidelog.spark.losses import Loss, report
from tidelog.spark.offsets import (
    INITIAL,
    Progress,
    SourceOffset,
    from_json,
    is_initial,
    to_json,
)
from tidelog.spark.options import Place, SourceOptions
from tidelog.spark.planning import (
    NO_VERSION,
    Comparison,
    OffsetRange,
    capped,
    compare,
    count_rows,
    limit_rows,
    never_back,
    new_partitions,
    overlaid,
    plan_ranges,
    split_ranges,
    to_compare,
    trimmed_since,
    trimmed_unread,
)


class Positions(Protocol):
    """What a planner asks; `Cluster` asks a real one."""

    def look(self) -> View:
        """Which topics and partitions there are now."""
        ...

    def earliest(self, view: View) -> Progress:
        """The first kept offsets."""
        ...

    def latest(self, view: View) -> Progress:
        """The high watermarks."""
        ...

    def resolve(self, view: View, place: Place, option: str) -> tuple[Progress, list[Loss]]:
        """Where the options let a read begin."""
        ...

    def cuts(
        self, read: dict[TopicPartition, tuple[int, int]], view: View
    ) -> dict[TopicPartition, int]:
        """Where logs part from what was read of them."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class StreamPlanner:
    """Driver side of one streaming query."""

    def __init__(self, options: SourceOptions, cluster: Positions | None = None) -> None:
        self._options = options
        self._opened = cluster
        self._fixed_end: Progress | None = None
        self._last_seen: Progress | None = None
        self._told: set[Loss] = set()
        self._version = NO_VERSION

    def initial_offset(self) -> dict[str, object]:
        """The same whenever it is asked."""
        return dict(INITIAL)

    def latest_offset(self, start: dict[str, object], max_rows: int | None) -> dict[str, object]:
        """The first call pins the real start as an empty batch; later ones move on from it."""
        view = self._cluster().look()
        self._version = view.version
        if is_initial(start):
            check_named(view)
            base, losses = self._cluster().resolve(view, self._options.starting, "startingOffsets")
            self._report(losses)
            return to_json(SourceOffset(progress=base, base=base))
        begun = from_json(start).progress
        _check_known(view, begun)
        found = self._cluster().latest(view)
        self._last_seen = found
        target = found if self._fixed_end is None else capped(found, self._fixed_end)
        restarts = self._restarts(view, begun, found, target)
        begins = overlaid(begun, restarts)
        latest = never_back(begins, target)
        if max_rows is not None and count_rows(begins, latest) > max_rows:
            # What was trimmed away would take its share of the limit, batch for batch.
            lifted = self._lifted(view, begins)
            restarts, begins = overlaid(restarts, lifted), overlaid(begins, lifted)
            latest = limit_rows(begins, never_back(begins, target), max_rows)
        if not restarts and not plan_ranges(begins, latest):
            return start
        return to_json(SourceOffset(progress=latest, base=restarts or None))

    def fix_end(self) -> None:
        """From now on nothing beyond what is there now is planned."""
        self._fixed_end = self._cluster().latest(self._cluster().look())

    def report_latest_offset(self) -> dict[str, object] | None:
        """What was last seen in the cluster, without asking again."""
        if self._last_seen is None:
            return None
        return to_json(SourceOffset(progress=self._last_seen))

    def plan(self, start: dict[str, object], end: dict[str, object]) -> list[OffsetRange]:
        """The ranges between two offsets; the same for a batch that is run again."""
        ended = from_json(end)
        begun = {} if is_initial(start) else from_json(start).progress
        if is_initial(start) and ended.base is None:
            begun = ended.progress
        begins = overlaid(begun, ended.base or {})
        ranges = plan_ranges(begins, ended.progress, self._version)
        return split_ranges(ranges, self._options.min_partitions)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _restarts(self, view: View, begun: Progress, found: Progress, target: Progress) -> Progress:
        """Where partitions begin that are not read on from where they stood; losses are told."""
        asked = to_compare(begun, found)
        compared: Comparison = compare(
            begun, found, self._cluster().cuts(asked, view), self._options.is_named
        )
        self._report(compared.losses)
        fresh = new_partitions(begun, target)
        if not fresh:
            return compared.restarts
        beginnings = self._cluster().earliest(view)
        fresh = {
            topic: type(each)(
                each.topic_id,
                {number: beginnings[topic].offsets[number] for number in each.offsets},
                each.leader_epochs,
            )
            for topic, each in fresh.items()
        }
        self._report(trimmed_unread(fresh, begun))
        return overlaid(compared.restarts, fresh)

    def _lifted(self, view: View, begins: Progress) -> Progress:
        """Where logs begin that were trimmed beyond the place to go on at; the losses are told."""
        losses, lifted = trimmed_since(begins, self._cluster().earliest(view))
        self._report(losses)
        return lifted

    def _report(self, losses: list[Loss] | tuple[Loss, ...]) -> None:
        """A loss that stays is told once, not at each trigger."""
        unknown = [loss for loss in losses if loss not in self._told]
        report(unknown, fail_on_data_loss=self._options.fail_on_data_loss)
        self._told.update(unknown)

    def _cluster(self) -> Positions:
        if self._opened is None:
            self._opened = Cluster(self._options)
        return self._opened


def _check_known(view: View, begun: Progress) -> None:
    """A topic or partition that a checkpoint knows is lost, one that it does not is a mistake."""
    check_named(
        View(
            partitions=view.partitions,
            missing=tuple(name for name in view.missing if name not in begun),
            lacking=tuple(
                name
                for name in view.lacking
                if name.topic not in begun or name.partition not in begun[name.topic].offsets
            ),
        )
    )

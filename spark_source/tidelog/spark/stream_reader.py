"""What Spark calls for `spark.readStream`: its own words for what `tidelog.spark.stream` decides.

Imported by Spark 4.2 and later only: before, a Python source has no admission control.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark import stream
from tidelog.spark.batch_reader import RangePartition, read_task
from tidelog.spark.options import SourceOptions, parse_options


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches; what it decides stands in `tidelog.spark.stream`.

    It is made of any options: a mistake in them is raised by the first call, whose error Spark
    shows as it is.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_options(self._given, is_streaming=True)

    @cached_property
    def _planner(self) -> stream.StreamPlanner:
        return stream.StreamPlanner(self._options)

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """A constant: the real start is pinned by the first batch."""
        return self._planner.initial_offset()

    def latestOffset(  # noqa: N802
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Where the next batch ends."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planner.latest_offset(start, max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`, as Spark's admission control knows it."""
        if self._options.max_offsets_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.max_offsets_per_trigger)

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """For the query's progress: how far behind it is."""
        return self._planner.report_latest_offset()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run at what is there now."""
        self._planner.fix_end()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The tasks of one batch."""
        return [RangePartition(span) for span in self._planner.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return read_task(self._options, partition)

    def stop(self) -> None:
        """Spark does not always call it; the runner's end closes the connection anyway."""
        if "_planner" in vars(self):
            self._planner.close()

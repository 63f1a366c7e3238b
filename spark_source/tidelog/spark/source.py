"""The data source that Spark knows as `tidelog`: options in, readers out.

Spark pickles it to a planner process and to every task, so it holds only its options and opens
nothing. Everything heavy is imported where it is needed.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.spark import stream
from tidelog.spark.arrow import source_schema
from tidelog.spark.cluster import Cluster
from tidelog.spark.options import SourceOptions, parse_options
from tidelog.spark.planning import OffsetRange, plan_ranges, split_ranges
from tidelog.spark.reading import read_range


class RangePartition(InputPartition):
    """A task: some offsets of one partition."""

    def __init__(self, span: OffsetRange) -> None:
        super().__init__(None)
        self.span = span


class TidelogDataSource(DataSource):
    """`format("tidelog")`, for batch and streaming reads."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "tidelog"

    def schema(self) -> str:
        """The columns of Spark's Kafka connector."""
        # Spark's own dictionary does not mind the case of a name.
        include = self.options.get("includeHeaders", "false")
        return source_schema(include_headers=include.lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        del schema
        return BatchReader(parse_options(self.options, is_streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        del schema
        return StreamReader(parse_options(self.options, is_streaming=True))


class BatchReader(DataSourceReader):
    """A read from a start to an end that are both resolved when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One task a partition, or more if `minPartitions` asks for it."""
        with Cluster(self._options) as cluster:
            start = cluster.resolve_start()
            end = cluster.resolve_end()
        ranges = plan_ranges(start, end)
        return [RangePartition(span) for span in split_ranges(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, RangePartition), f"not planned here: {partition!r}"
        return read_range(self._options, partition.span)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of micro-batches; what it decides stands in `tidelog.spark.stream`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = stream.StreamPlanner(options)

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
        assert isinstance(partition, RangePartition), f"not planned here: {partition!r}"
        return read_range(self._options, partition.span)

    def stop(self) -> None:
        """Spark does not always call it; the runner's end closes the connection anyway."""
        self._planner.close()

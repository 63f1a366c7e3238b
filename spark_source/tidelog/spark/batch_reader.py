"""What Spark calls for `spark.read`, and the tasks of every read."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.batch import plan_batch
from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.reading import read_range


class RangePartition(InputPartition):
    """A task: some offsets of one partition."""

    def __init__(self, span: OffsetRange) -> None:
        super().__init__(None)
        self.span = span


class BatchReader(DataSourceReader):
    """A read from a start to an end that are both resolved when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One task a partition, or more if `minPartitions` asks for it."""
        return [RangePartition(span) for span in plan_batch(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return read_task(self._options, partition)


def read_task(options: SourceOptions, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """The records of a task. Where nothing was planned Spark makes one of its own: it has none."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(options, partition.span)

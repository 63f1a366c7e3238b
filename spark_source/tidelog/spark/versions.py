"""What each version of Spark can do with this source."""

import importlib.util
from collections.abc import Iterator

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.wire.errors import ErrorCode, TidelogError

ADMISSION_CONTROL = "pyspark.sql.streaming.datasource"
"""The module by which a Python source limits its batches: from Spark 4.2 on."""


class RefusedStream(DataSourceStreamReader):
    """Stands where a stream would run without limits, and AvailableNow would never end.

    Spark buries an error that is raised while a reader is made; this one raises it when asked.
    """

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Never gives one."""
        raise TidelogError(
            ErrorCode.NOT_IMPLEMENTED,
            tried='read a stream of format("tidelog")',
            happened=f"this is Spark {pyspark.__version__}, whose Python sources have no "
            "admission control",
            hint="use Spark 4.2 or later, or read in batches with spark.read",
        )

    def latestOffset(self, *_: object) -> dict[str, object]:  # noqa: N802
        """Never gives one."""
        return self.initialOffset()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Nothing is planned."""
        del partition
        return iter(())


def may_stream() -> bool:
    """Whether this Spark lets a Python source limit its batches."""
    return importlib.util.find_spec(ADMISSION_CONTROL) is not None

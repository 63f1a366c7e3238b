"""The data source that Spark knows as `tidelog`: options in, readers out.

Spark pickles it to a planner process and to every task, so it holds only its options and opens
nothing. It must never import more than Spark's base class before it is used: Spark imports it only
to learn its name, and an error there would take every other data source with it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class TidelogDataSource(DataSource):
    """`format("tidelog")`, for batch and streaming reads."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "tidelog"

    def schema(self) -> str:
        """The columns of Spark's Kafka connector."""
        from tidelog.spark.columns import source_schema

        # Spark's own dictionary does not mind the case of a name.
        include = self.options.get("includeHeaders", "false")
        return source_schema(include_headers=include.strip().lower() == "true")

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """For `spark.read`."""
        from tidelog.spark.batch_reader import BatchReader
        from tidelog.spark.options import parse_options

        del schema
        return BatchReader(parse_options(self.options, is_streaming=False))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """For `spark.readStream`."""
        from tidelog.spark.versions import RefusedStream, may_stream

        del schema
        if not may_stream():
            return RefusedStream()
        from tidelog.spark.stream_reader import StreamReader

        # Spark buries an error that is raised here under one of its own; the reader raises it.
        return StreamReader(dict(self.options))

"""What each version of Spark can do with this source."""

import importlib.util

import pyspark

from tidelog.wire.errors import ErrorCode, TidelogError

ADMISSION_CONTROL = "pyspark.sql.streaming.datasource"
"""The module by which a Python source limits its batches: from Spark 4.2 on."""


def check_streams() -> None:
    """Raises where a stream would run without limits, and AvailableNow would never end."""
    if importlib.util.find_spec(ADMISSION_CONTROL) is None:
        raise TidelogError(
            ErrorCode.NOT_IMPLEMENTED,
            tried='read a stream of format("tidelog")',
            happened=f"this is Spark {pyspark.__version__}, whose Python sources have no "
            "admission control",
            hint="use Spark 4.2 or later, or read in batches with spark.read",
        )

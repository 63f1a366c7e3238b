"""Lets Spark find `format("tidelog")` by itself.

Spark imports every top-level module named `pyspark_*` in one worker, and skips them all if one of
them raises: so what this one imports is Spark's own base class, and nothing of what reading needs.
What is missing is told when the format is used.
"""

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""Lets Spark find `format("tidelog")` by itself.

Spark imports every top-level module named `pyspark_*` in one worker, and skips them all if one of
them raises: so this one imports as little as it can and never fails on what is missing.
"""

from tidelog.spark.source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]

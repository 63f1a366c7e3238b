"""Spark finds the format by importing the module; that must work wherever Spark itself does."""

import subprocess
import sys
from typing import Final

import pytest

from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow

ABSENT: Final = {
    "admission control, as before Spark 4.2": ("pyspark.sql.streaming.datasource",),
    "Arrow": ("pyarrow", "pyarrow.compute"),
    "what the client stands on": ("grpc", "google.protobuf", "msgspec"),
}
# Spark's own base class is there, with all that this version of Spark wants for it.
IMPORT: Final = """
import sys
from pyspark.sql.datasource import DataSource
{blocked}
import pyspark_tidelog
assert issubclass(pyspark_tidelog.DefaultSource, DataSource)
print(pyspark_tidelog.DefaultSource.name())
print(pyspark_tidelog.DefaultSource({{"includeHeaders": "TRUE"}}).schema())
print(sorted(name for name in sys.modules if name.startswith("tidelog.")))
"""


def run(program: str) -> list[str]:
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def blocking(names: tuple[str, ...]) -> str:
    return "".join(f"sys.modules[{name!r}] = None\n" for name in names)


@pytest.mark.parametrize("what", ABSENT)
def test_the_format_is_found_without(what: str) -> None:
    name, schema, imported = run(IMPORT.format(blocked=blocking(ABSENT[what])))
    assert name == "tidelog"
    assert schema.endswith("headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
    assert imported == "['tidelog.spark', 'tidelog.spark.columns', 'tidelog.spark.source']"


def test_a_stream_on_a_spark_that_cannot_limit_it_is_refused_in_words() -> None:
    blocked = blocking(ABSENT["admission control, as before Spark 4.2"])
    lines = run(
        f"import sys\nimport pyspark.sql.datasource\n{blocked}"
        "from tidelog.spark.source import TidelogDataSource\n"
        "from tidelog.wire.errors import TidelogError\n"
        "try:\n"
        "    TidelogDataSource({'subscribe': 't'}).streamReader(None).initialOffset()\n"
        "except TidelogError as error:\n"
        "    print(error)\n"
        "print(type(TidelogDataSource({'subscribe': 't'}).reader(None)).__name__)\n"
    )
    assert "[NOT_IMPLEMENTED]" in lines[0]
    assert "Spark 4.2 or later" in lines[0]
    assert lines[1] == "BatchReader"

"""Scripts for kafka-python, as they are on Apache Kafka, and with their import changed on Tidelog.

`python -m bench.kafka_scripts` starts a real Kafka and a Tidelog node, runs every script of
tests/kafka/scripts on both, and prints a line for each and the differences. `--rewrite` keeps what
the real ones printed beside the scripts: the test suite holds Tidelog to it without a JVM.

Owns the one edit that a script gets: `kafka` becomes `tidelog.kafka` in its import lines, and
`import kafka` becomes `from tidelog import kafka`.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

SCRIPTS: Final = Path(__file__).resolve().parents[1] / "tests" / "kafka" / "scripts"
SCRIPT_SECONDS_MAX: Final = 600.0
KAFKA_PORT: Final = 9092
"""Where kafka-python looks when it is told no address."""
_PLAIN: Final = re.compile(r"^import kafka$", re.MULTILINE)
_IMPORT: Final = re.compile(r"^(from|import) kafka\b", re.MULTILINE)


class Ran(NamedTuple):
    """What a script printed, and how it ended."""

    output: str
    errors: str
    seconds: float


def names() -> list[str]:
    """Of all scripts."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py"))


def with_import_changed(text: str) -> str:
    """The whole migration of a script."""
    # Whoever imports the package uses its name afterwards, which stays as it is.
    return _IMPORT.sub(r"\1 tidelog.kafka", _PLAIN.sub("from tidelog import kafka", text))


def expected(name: str) -> str:
    """What kafka-python printed against Apache Kafka."""
    return (SCRIPTS / f"{name}.txt").read_text("utf-8")


def run(script: Path, bootstrap: str) -> Ran:
    """In a process of its own, as its user runs it."""
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP": bootstrap,
        "TIDELOG_BOOTSTRAP": bootstrap,
        "PYTHONIOENCODING": "utf-8",
    }
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        timeout=SCRIPT_SECONDS_MAX,
        check=False,
    )
    output = ended.stdout
    if ended.returncode != 0:
        output += f"exit status {ended.returncode}\n"
    return Ran(output, ended.stderr, time.monotonic() - began)


def run_migrated(name: str, bootstrap: str, directory: Path) -> Ran:
    """The script with only its import changed."""
    migrated = directory / f"{name}.py"
    text = (SCRIPTS / f"{name}.py").read_text("utf-8")
    migrated.write_text(with_import_changed(text), "utf-8")
    return run(migrated, bootstrap)


def difference(name: str, real: str, tidelog: str) -> str:
    """In the form of diff -u; empty: there is none."""
    lines = difflib.unified_diff(
        real.splitlines(),
        tidelog.splitlines(),
        f"{name}: kafka-python, Apache Kafka",
        f"{name}: tidelog.kafka, Tidelog",
        lineterm="",
    )
    return "\n".join(lines)


def compare(wanted: Sequence[str], kafka: str, tidelog: str, *, is_rewriting: bool) -> int:
    """A line for each script; how many differ."""
    differing = 0
    with tempfile.TemporaryDirectory(prefix="kafka-scripts-") as directory:
        for name in wanted:
            real = run(SCRIPTS / f"{name}.py", kafka)
            here = run_migrated(name, tidelog, Path(directory))
            if is_rewriting:
                (SCRIPTS / f"{name}.txt").write_text(real.output, "utf-8")
            found = difference(name, real.output, here.output)
            differing += bool(found)
            print(
                f"{name:18} {'differs' if found else 'same':8} "
                f"{len(real.output.splitlines()):4} lines  "
                f"kafka-python {real.seconds:5.1f} s  tidelog.kafka {here.seconds:5.1f} s",
                flush=True,
            )
            if found:
                print(found, real.errors[-2_000:], here.errors[-2_000:], sep="\n", flush=True)
    return differing


def main() -> int:
    """The exit status is 1 if a script prints something else here than there."""
    from bench.peers.kafka.node import KafkaNode, PeerMissingError, prepare
    from bench.peers.tidelog_node import TidelogNode

    parser = argparse.ArgumentParser(prog="python -m bench.kafka_scripts", description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"of {', '.join(names())}")
    parser.add_argument("--rewrite", action="store_true", help="keep what the real ones printed")
    arguments = parser.parse_args()
    try:
        prepare()
        with KafkaNode(KAFKA_PORT) as kafka, TidelogNode() as tidelog:
            differing = compare(
                arguments.scripts or names(),
                kafka.bootstrap,
                tidelog.bootstrap,
                is_rewriting=arguments.rewrite,
            )
    except PeerMissingError as error:
        print(error, file=sys.stderr)
        return 2
    print("no differences" if not differing else f"{differing} scripts differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

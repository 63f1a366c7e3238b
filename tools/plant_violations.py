"""Shows that every checker of `make check` catches what it is there for.

Copies the sources to a temporary folder, and for each plant changes one file there, runs the one
checker, and expects that it fails and says the right thing, which it did not say before. A checker
that was never seen to fail checks nothing. The sources themselves are only read.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tools.check import CHECKERS
from tools.repository import TOP, tracked_files

TIMEOUT_SECONDS: Final = 300
LINKED: Final = (".venv", ".venv-proto")
COPIED: Final = (".mypy_cache", ".ruff_cache")


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: in `path`, `old` becomes `new`, or `new` is appended if there is no `old`."""

    checker: str
    what: str
    path: str
    new: str
    old: str = ""
    says: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a checker caught a plant."""

    plant: Plant
    is_caught: bool
    seconds: float
    line: str


def _contract(what: str, path: str, new: str, says: str) -> Plant:
    return Plant(checker="imports", what=what, path=path, new=new, says=f"{says} BROKEN")


BROKER: Final = "broker/tidelog/broker/__init__.py"
SERVER: Final = "broker/tidelog/server/__init__.py"
CLIENT: Final = "client_sdk/tidelog/client/__init__.py"
QUORUM: Final = "metadata_quorum/tidelog/metadata_quorum"
MODEL: Final = "metadata_quorum/tidelog/metadata"
NODE_LAYERS: Final = "ports, wire and v1"
CLIENT_LAYERS: Final = "kafka stand on client"
PURITY: Final = "no clock, randomness, file, socket, thread, log, gRPC or protobuf"

IMPORT_PLANTS: Final = (
    _contract(
        "the quorum imports the broker",
        f"{QUORUM}/__init__.py",
        "import tidelog.broker\n",
        NODE_LAYERS,
    ),
    _contract("the server imports the cli", SERVER, "import tidelog.cli\n", NODE_LAYERS),
    _contract(
        "a port imports the broker",
        "ports/tidelog/ports/clock.py",
        "import tidelog.broker\n",
        NODE_LAYERS,
    ),
    _contract("the client imports the cli", CLIENT, "import tidelog.cli\n", CLIENT_LAYERS),
    _contract(
        "the broker imports the client",
        BROKER,
        "import tidelog.client\n",
        "a node nothing of the client",
    ),
    _contract(
        "the client imports the quorum",
        CLIENT,
        "import tidelog.metadata_quorum\n",
        "never imports the quorum or the server",
    ),
    _contract(
        "the server imports the client",
        SERVER,
        "import tidelog.client\n",
        "The server never imports the client",
    ),
    _contract(
        "Spark imports the broker",
        "spark_source/tidelog/spark/__init__.py",
        "import tidelog.broker\n",
        "know nothing of a node's insides",
    ),
    *(
        _contract(f"a pure module imports {name}", path, f"import {name}\n", PURITY)
        for path, name in (
            ("proto/tidelog/wire/ids.py", "os"),
            ("proto/tidelog/wire/errors.py", "tidelog.v1.common_pb2"),
            (f"{MODEL}/records/entries.py", "time"),
            (f"{MODEL}/image/image.py", "asyncio"),
            (f"{MODEL}/apply/entries.py", "random"),
        )
    ),
    _contract(
        "the broker imports a clock",
        BROKER,
        "import time\n",
        "sockets and threads through ports only",
    ),
)

OTHER_PLANTS: Final = (
    Plant(
        checker="types",
        what="a wrong type in a core",
        path="proto/tidelog/wire/ids.py",
        new='\nWRONG: int = "text"\n',
        says="Incompatible types in assignment",
    ),
    Plant(
        checker="public-types",
        what="a public function without types",
        path=CLIENT,
        new="\n\ndef planted(value):\n    return value\n",
        says='Type annotation is missing for parameter "value"',
    ),
    Plant(
        checker="public-types",
        what="a user's program misuses the API",
        path="examples/typed/planted.py",
        new="from tidelog.client import Producer\n\nProducer(linger_ms='a while')\n",
        says='cannot be assigned to parameter "linger_ms"',
    ),
    Plant(
        checker="proto-generated",
        what="a field without generated code",
        path="proto/tidelog/v1/common.proto",
        new="\n// Planted.\nmessage Planted {\n  // One field.\n  int32 value = 1;\n}\n",
        says="common_pb2.py: differs from what its .proto generates",
    ),
    Plant(
        checker="proto-lint",
        what="a message without a comment, a field not in lower case",
        path="proto/tidelog/v1/common.proto",
        new="\nmessage Planted {\n  int32 someValue = 1;\n}\n",
        says='Field name "someValue" should be lower_snake_case',
    ),
    Plant(
        checker="proto-breaking",
        what="a field gets another number",
        path="proto/tidelog/v1/produce.proto",
        old="= 1;",
        new="= 1001;",
        says="was deleted",
    ),
    Plant(
        checker="docs-generated",
        what="an error's remedy changes, its page does not",
        path="proto/tidelog/wire/errors.py",
        old="Correct the named value.",
        new="Correct the value that is named.",
        says="docs/errors.md: differs from its source",
    ),
    Plant(
        checker="threads-generated",
        what="a text for asyncio changes, the file for threads does not",
        path="client_sdk/tidelog/client/aio/cluster_calls.py",
        old="Fetch metadata and take it in.",
        new="Ask for metadata and take it in.",
        says="sync/cluster_calls.py: differs from what",
    ),
    Plant(
        checker="links",
        what="a link to a page that is not there",
        path="README.md",
        new="\n[more](docs/nowhere.md)\n",
        says="docs/nowhere.md does not exist",
    ),
    Plant(
        checker="links",
        what="a link to a heading that is not there",
        path="README.md",
        new="\n[more](docs/errors.md#nowhere)\n",
        says="has no heading #nowhere",
    ),
    Plant(
        checker="locks",
        what="a dependency without a new lock",
        path="pyproject.toml",
        old="dependencies = [\n",
        new='dependencies = [\n    "attrs>=24",\n',
        says="its inputs changed since",
    ),
    Plant(
        checker="locks",
        what="a package without a hash",
        path="requirements/run.lock",
        new="attrs==24.1.0\n",
        says="attrs==24.1.0 has no hash",
    ),
    Plant(
        checker="locks",
        what="a registry in a lock",
        path="requirements/run.lock",
        new="# --index-url https://example.org/simple\n",
        says="names a registry or an address",
    ),
    Plant(
        checker="tidy",
        what="a function of 61 lines",
        path="tools/planted.py",
        new='"""Owns a long function."""\n\ndef planted() -> None:\n' + "    assert True\n" * 60,
        says="planted has 61 lines",
    ),
    Plant(
        checker="tidy",
        what="an executor outside ports/",
        path=BROKER,
        new="\n\ndef planted(loop):\n    loop.run_in_executor(None, print)\n",
        says="run_in_executor is banned outside ports/",
    ),
    *(
        Plant(
            checker="lint",
            what=f"{name} outside ports/",
            path=BROKER,
            new=f"\nimport {name.split('.')[0]}\n\nplanted = {name}\n",
            says=f"`{name}` is banned",
        )
        for name in (
            "asyncio.TaskGroup",
            "asyncio.all_tasks",
            "asyncio.as_completed",
            "asyncio.wait",
            "weakref.WeakSet",
        )
    ),
    Plant(
        checker="lint",
        what="every exception is swallowed",
        path="broker/tidelog/broker/planted.py",
        new='"""Owns nothing."""\n\ntry:\n    print()\nexcept Exception:\n    print()\n',
        says="planted.py:5:8: BLE001",
    ),
    Plant(
        checker="format",
        what="a line as nobody formats it",
        path="tools/planted.py",
        new='"""Owns a line."""\nx = { "a":1 }\n',
        says="planted.py",
    ),
)

PLANTS: Final = (*OTHER_PLANTS, *IMPORT_PLANTS)


def copy_tree(target: Path) -> None:
    """The sources as they are now, with the environments linked and the caches copied."""
    for path in tracked_files():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOP / path, target / path)
    for name in LINKED:
        (target / name).symlink_to(TOP / name)
    for name in COPIED:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, target / name)


def run_checker(tree: Path, name: str) -> tuple[int, str]:
    """Exit code of one checker in the copy, and what it said, in one line."""
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [str(tree / ".venv/bin/python"), "-m", "tools.check", name],
        cwd=tree,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode, done.stdout


def _flat(text: str) -> str:
    return " ".join(text.split())


def try_plant(tree: Path, plant: Plant, said_before: str) -> Verdict:
    """Plants, runs the checker, takes the plant out again."""
    path = tree / plant.path
    before = path.read_text("utf-8") if path.is_file() else None
    text = before or ""
    assert plant.old in text, f"{plant.path} does not hold {plant.old!r}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace(plant.old, plant.new, 1) if plant.old else text + plant.new)
    started = time.monotonic()
    code, output = run_checker(tree, plant.checker)
    seconds = time.monotonic() - started
    if before is None:
        path.unlink()
    else:
        path.write_text(before, "utf-8")
    line = next((_flat(line) for line in output.splitlines() if plant.says in _flat(line)), "")
    is_caught = code == 1 and plant.says in _flat(output) and plant.says not in _flat(said_before)
    return Verdict(
        plant=plant, is_caught=is_caught, seconds=seconds, line=line or _flat(output)[-300:]
    )


def try_all(tree: Path, plants: Sequence[Plant]) -> Iterator[Verdict]:
    """Every plant, one after the other, each in an otherwise unchanged copy."""
    said: dict[str, str] = {}
    for plant in plants:
        if plant.checker not in said:
            code, said[plant.checker] = run_checker(tree, plant.checker)
            if code:
                print(f"({plant.checker} fails before anything is planted)")
        yield try_plant(tree, plant, said[plant.checker])


def main() -> int:
    """Prints a line for each plant; fails if one is missed or a checker has none."""
    parser = argparse.ArgumentParser(prog="python -m tools.plant_violations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECKER", help="default: all of them")
    names = parser.parse_args().names
    without = {checker.name for checker in CHECKERS} - {plant.checker for plant in PLANTS}
    assert not without, f"nothing is planted for {sorted(without)}"
    plants = [plant for plant in PLANTS if not names or plant.checker in names]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for verdict in try_all(Path(folder), plants):
            plant = verdict.plant
            missed += not verdict.is_caught
            mark = "caught" if verdict.is_caught else "MISSED"
            print(f"{plant.checker:<16} {mark} {verdict.seconds:5.1f} s  {plant.what}")
            print(f"{'':<16} {verdict.line[:160].replace(folder, '')}", flush=True)
    print(f"{len(plants) - missed} of {len(plants)} violations caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

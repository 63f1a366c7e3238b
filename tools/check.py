"""Runs every check that reads the sources, two at a time, and prints one line for each.

It never changes a source: what a program can repair is repaired by `make fix`, `make proto`,
`make lock` and `make docs`. A checker is a command that ends with 0 or says what is wrong; the
commands stand in `CHECKERS`, longest first, because the slowest one sets the pace.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from tools.repository import TOP

PARALLEL: Final = 2
TIMEOUT_SECONDS: Final = 1800.0
"""Only a hang reaches it, on whatever machine and beside whatever load."""
BIN: Final = Path(sys.executable).parent
"""The environment's programs; not resolved, because its `python` is a link out of it."""


class Checker(msgspec.Struct, frozen=True, kw_only=True):
    """A named command; `repair` is what to type when it fails."""

    name: str
    command: tuple[str, ...]
    repair: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a checker said."""

    checker: Checker
    passed: bool
    seconds: float
    output: str


def _tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(BIN / name), *arguments)


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(BIN / "python"), "-m", name, *arguments)


CHECKERS: Final = (
    Checker(name="public-types", command=_tool("basedpyright", "--warnings")),
    Checker(name="types", command=_tool("mypy", "--no-error-summary")),
    Checker(name="tidy", command=_module("tools.tidy")),
    Checker(name="imports", command=_module("tools.check_imports")),
    Checker(
        name="proto-generated",
        command=_module("tools.check_generated"),
        repair="make proto",
    ),
    Checker(name="proto-lint", command=_tool("buf", "lint")),
    Checker(
        name="proto-breaking",
        command=_tool("buf", "breaking", "--against", "proto/baseline.binpb"),
    ),
    Checker(
        name="docs-generated",
        command=_module("tools.generate_docs", "--check"),
        repair="make docs",
    ),
    Checker(
        name="threads-generated",
        command=_module("tools.unasync", "--check"),
        repair="make threads",
    ),
    Checker(name="links", command=_module("tools.check_links")),
    Checker(name="locks", command=_module("tools.lock"), repair="make lock"),
    Checker(
        name="lint",
        command=_tool("ruff", "check", "--quiet", "--output-format=concise"),
        repair="make fix",
    ),
    Checker(
        name="format",
        command=_tool("ruff", "format", "--check", "--quiet", "--output-format=concise"),
        repair="make fix",
    ),
)


def run(checker: Checker, top: Path = TOP) -> Outcome:
    """Runs one checker to its end or its deadline."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            checker.command,
            cwd=top,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        passed, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired:
        passed, output = False, f"no answer within {TIMEOUT_SECONDS:.0f} s"
    seconds = time.monotonic() - started
    return Outcome(checker=checker, passed=passed, seconds=seconds, output=output.strip())


def report(outcome: Outcome) -> None:
    """Prints one line; for a failure what the checker said and how to repair it."""
    mark = "ok" if outcome.passed else "FAILED"
    print(f"{outcome.checker.name:<16} {outcome.seconds:6.1f} s  {mark}", flush=True)
    if not outcome.passed:
        print(outcome.output, flush=True)
        if outcome.checker.repair:
            print(f"hint: {outcome.checker.repair}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checkers named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tools.check", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECKER", help="default: all of them")
    names = parser.parse_args(arguments).names
    unknown = set(names) - {checker.name for checker in CHECKERS}
    if unknown:
        print(f"no such checker: {', '.join(sorted(unknown))}", file=sys.stderr)
        print(f"hint: {', '.join(checker.name for checker in CHECKERS)}", file=sys.stderr)
        return 2
    chosen = [checker for checker in CHECKERS if not names or checker.name in names]
    started = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        for outcome in pool.map(run, chosen):
            report(outcome)
            failed += not outcome.passed
    seconds = time.monotonic() - started
    print(f"{len(chosen) - failed} of {len(chosen)} checks passed in {seconds:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the command line as a process of its own, and reads what it says of a mistake."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

RUN_SECONDS: Final = 60.0


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left."""

    code: int
    out: bytes
    err: str


def cli_command(*arguments: str | bytes) -> list[str | bytes]:
    """The command line of a `tidelog` command."""
    return [sys.executable, "-m", "tidelog", *arguments]


def cli_environment(bootstrap: str = "", extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command that finds its cluster by TIDELOG_BOOTSTRAP."""
    mine = {name: text for name, text in os.environ.items() if not name.startswith("TIDELOG_")}
    return {**mine, "TIDELOG_BOOTSTRAP": bootstrap or "127.0.0.1:1", **(extra or {})}


def run_cli(
    *arguments: str | bytes,
    bootstrap: str = "",
    stdin: bytes = b"",
    directory: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> Done:
    """Run to the end."""
    done = subprocess.run(
        cli_command(*arguments),
        input=stdin,
        capture_output=True,
        env=cli_environment(bootstrap, extra),
        cwd=directory,
        timeout=RUN_SECONDS,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr.decode())


def assert_three_lines(text: str, *, why: str, hint: str) -> None:
    """What, why, hint: one line each."""
    lines = text.splitlines()
    assert len(lines) == 3, text
    assert lines[0].startswith("error: "), text
    assert len(lines[0]) > len("error: "), text
    assert lines[1].strip(), text
    assert why in lines[1], text
    assert lines[2].startswith("hint: "), text
    assert hint in lines[2], text
    assert "Traceback" not in text

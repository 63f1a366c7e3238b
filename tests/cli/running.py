"""Runs the command line as a process of its own, and reads what it says of a mistake.

Owns what is known of a command that does not end: where each of its threads stands.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.support.waiting import HANG_SECONDS

ANNOUNCED: Final = b"Ctrl-C is heard\n"
_ANNOUNCING: Final = (
    "import runpy\n"
    "from tidelog.cli.frame import interrupt\n"
    "interrupt.install()\n"
    f"print({ANNOUNCED.decode().strip()!r}, flush=True)\n"
    "runpy.run_module('tidelog', run_name='__main__', alter_sys=True)\n"
)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a command left."""

    code: int
    out: bytes
    err: str


def cli_command(*arguments: str | bytes) -> list[str | bytes]:
    """The command line of a `tidelog` command."""
    return [sys.executable, "-m", "tidelog", *arguments]


def announced_command(*arguments: str) -> list[str]:
    """The same command, whose first line says that from now on it decides what Ctrl-C does.

    Before that the interpreter is starting: there a signal ends it in its own way.
    """
    return [sys.executable, "-c", _ANNOUNCING, *arguments]


def telling_command(*arguments: str) -> list[str | bytes]:
    """The same command under a shell, which writes the exit code behind what it says on stderr.

    Popen makes 0 of a status that somebody else in this process has taken.
    """
    return ["/bin/sh", "-c", '"$@"; echo "$?" >&2', "sh", *cli_command(*arguments)]


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
    timeout_s: float = HANG_SECONDS,
) -> Done:
    """Run to the end; one that does not end fails with the stacks of its threads."""
    with subprocess.Popen(
        cli_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # On SIGABRT the stacks go to stderr, also when the interpreter is past its end.
        env={**cli_environment(bootstrap, extra), "PYTHONFAULTHANDLER": "1"},
        cwd=directory,
    ) as command:
        try:
            out, err = command.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            command.send_signal(signal.SIGABRT)
            out, err = _last_words(command)
            pytest.fail(
                f"{command.args!r} did not end within {timeout_s} s\n"
                f"stdout: {out.decode(errors='replace')}\nstderr: {err.decode(errors='replace')}",
                pytrace=False,
            )
        except BaseException:
            command.kill()
            raise
    return Done(code=command.returncode, out=out, err=err.decode())


def _last_words(command: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    try:
        return command.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        command.kill()
        return command.communicate()


def assert_three_lines(text: str, *, why: str, hint: str) -> None:
    """What, why, hint: one line each, behind what was said meanwhile of a wait that took long."""
    lines = [each for each in text.splitlines() if not each.startswith("waiting: ")]
    assert len(lines) == 3, text
    assert lines[0].startswith("error: "), text
    assert len(lines[0]) > len("error: "), text
    assert lines[1].strip(), text
    assert why in lines[1], text
    assert lines[2].startswith("hint: "), text
    assert hint in lines[2], text
    assert "Traceback" not in text

"""Small and read-only file systems, where this process may mount any."""

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import HANG_SECONDS


@functools.cache
def can_mount() -> bool:
    """Root outside a container mostly may; tried once."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as directory:
        try:
            with mounted(Path(directory), "size=64k"):
                return True
        except (OSError, subprocess.SubprocessError):
            return False


@contextlib.contextmanager
def mounted(directory: Path, options: str) -> Iterator[Path]:
    """A file system in memory."""
    directory.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory))
    try:
        yield directory
    finally:
        _run("umount", str(directory))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=HANG_SECONDS, capture_output=True)

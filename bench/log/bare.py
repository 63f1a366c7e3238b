"""The least that durable appending can cost: a loop of write and fdatasync, and nothing else.

Owns the yardstick of the append lines. It must never use more of Tidelog than the call of syncfs.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tidelog.ports.real.disk.io import flush_file_system

SYNCFS_FROM = 16
"""As many files are flushed faster together; the same crossover as Tidelog's disk adapter."""


def write_and_flush(
    directory: Path, *, files: int, piece: bytes, pieces_a_round: int, seconds: float, flush: bool
) -> float:
    """Bytes a second: rounds of `pieces_a_round` writes to each file, then one flush of all."""
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    handles = [
        os.open(directory / f"bare-{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for number in range(files)
    ]
    try:
        written = 0
        gathered = [piece] * pieces_a_round
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for handle in handles:
                written += os.writev(handle, gathered)
            if flush:
                _flush(root, handles)
        return written / (time.perf_counter() - begin)
    finally:
        for handle in handles:
            os.close(handle)
        os.close(root)
        for number in range(files):
            os.unlink(directory / f"bare-{number}")


def _flush(root: int, handles: Sequence[int]) -> None:
    if len(handles) >= SYNCFS_FROM:
        flush_file_system(root)
        return
    for handle in handles:
        os.fdatasync(handle)

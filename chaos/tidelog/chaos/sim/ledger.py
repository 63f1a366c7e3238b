"""Seeds add up over many runs: a committed file says how many were clean, of which code.

Owns `chaos/ledger/<suite>.json`. The key is a hash of every file that a suite imports, directly or
through others, so that a total never mixes two states of the code. It must never forget a seed that
showed a violation.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.sim.sources import ROOT
from tidelog.chaos.sim.verdicts.result import RunResult

_KEY_HEX: Final = 16


class Page(msgspec.Struct, kw_only=True):
    """What was run of one state of the code: seeds from 0 on, without a gap."""

    commit: str
    """Of the last run; a `+` behind it: files differed from it."""
    next_seed: int = 0
    counting: int = 0
    events: int = 0
    cpu_seconds: float = 0.0
    seeds_with_violations: list[int] = []


class Ledger:
    """Of one suite."""

    def __init__(self, path: Path, key: str, commit: str) -> None:
        self._path = path
        self._pages: dict[str, Page] = {}
        if path.exists():
            self._pages = msgspec.json.decode(path.read_bytes(), type=dict[str, Page])
        self.key = key
        self.page = self._pages.setdefault(key, Page(commit=commit))
        self.page.commit = commit

    def add(self, result: RunResult, cpu_seconds: float) -> None:
        """One more seed, the next one."""
        page = self.page
        assert result.seed == page.next_seed, f"seed {page.next_seed} comes next, not {result.seed}"
        page.next_seed += 1
        page.events += result.events
        page.cpu_seconds = round(page.cpu_seconds + cpu_seconds, 3)
        if result.violations:
            page.seeds_with_violations.append(result.seed)
        elif not result.missing:
            page.counting += 1

    def save(self) -> None:
        """Write the whole file anew; a run that is ended while it does so loses no page."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self._pages)) + b"\n")
        beside.replace(self._path)


def ledger_path(suite: str, root: Path = ROOT) -> Path:
    """Where the ledger of a suite lies."""
    return root / "chaos" / "ledger" / f"{suite}.json"


def hash_sources(files: Iterable[Path], root: Path = ROOT) -> str:
    """Returns a hash of the names and contents of these files."""
    digest = hashlib.blake2b(digest_size=_KEY_HEX // 2)
    for path in files:
        content = path.read_bytes()
        name = path.relative_to(root).as_posix()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()

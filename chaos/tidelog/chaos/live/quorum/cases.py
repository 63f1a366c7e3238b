"""The live cases of the metadata quorum by name: `python -m tidelog.chaos.live --case NAME`.

Owns the names and how many rounds a case has when nothing is said.
"""

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.chaos.live.quorum.bad_input import bad_input
from tidelog.chaos.live.quorum.flip import bit_flip
from tidelog.chaos.live.quorum.leader import leader_kill, leader_pause
from tidelog.chaos.live.quorum.membership import membership
from tidelog.chaos.live.quorum.wipe import wipe


class Run(Protocol):
    """A case: what it does stands in its module."""

    def __call__(self, directory: Path, *, rounds: int, seed: int) -> int:
        """Everything in that directory; the exit code."""
        ...


class Case(NamedTuple):
    """One case."""

    run: Run
    rounds: int
    summary: str


CASES: Final[dict[str, Case]] = {
    "leader-kill": Case(leader_kill, 50, "kill -9 of the active controller"),
    "leader-pause": Case(leader_pause, 5, "SIGSTOP of the active controller"),
    "wipe": Case(wipe, 3, "a voter loses its directory and is replaced"),
    "bit-flip": Case(bit_flip, 6, "a bit of a voter's journal is turned"),
    "membership": Case(membership, 1, "1 → 3 → 5 → 3 → 1 voters under writes"),
    "bad-input": Case(bad_input, 1, "what operators get wrong, and a full disk"),
}

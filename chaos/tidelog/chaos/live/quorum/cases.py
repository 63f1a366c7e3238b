"""The live cases of the metadata quorum, and how many rounds each has when nothing is said."""

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.chaos.live.quorum.bad_input import bad_input
from tidelog.chaos.live.quorum.flip import bit_flip
from tidelog.chaos.live.quorum.leader import leader_kill, leader_pause
from tidelog.chaos.live.quorum.membership import membership
from tidelog.chaos.live.quorum.wipe import wipe
from tidelog.chaos.live.shared.case import Orders


class Run(Protocol):
    """A case: what it does stands in its module."""

    def __call__(self, directory: Path, *, rounds: int, seed: int) -> int:
        """Everything in that directory; the exit code."""
        ...


class QuorumCase(NamedTuple):
    """What is done, and how often."""

    run: Run
    rounds: int
    summary: str


QUORUM_CASES: Final[dict[str, QuorumCase]] = {
    "leader-kill": QuorumCase(leader_kill, 50, "kill -9 of the active controller"),
    "leader-pause": QuorumCase(leader_pause, 5, "SIGSTOP of the active controller"),
    "wipe": QuorumCase(wipe, 3, "a voter loses its directory and is replaced"),
    "bit-flip": QuorumCase(bit_flip, 6, "a bit of a voter's journal is turned"),
    "membership": QuorumCase(membership, 1, "1 → 3 → 5 → 3 → 1 voters under writes"),
    "bad-input": QuorumCase(bad_input, 1, "what operators get wrong, and a full disk"),
}


def run_quorum_case(name: str, orders: Orders) -> int:
    """Runs one of them; returns the exit code."""
    case = QUORUM_CASES[name]
    return case.run(orders.directory, rounds=orders.rounds or case.rounds, seed=orders.seed)

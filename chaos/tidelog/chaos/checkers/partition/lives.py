"""Invariants over the lives of a replica: what a start derives equals what was live before.

Only of deaths of processes: what a crash of the machine takes is judged by what was committed.
"""

import functools

from tidelog.broker.log.state.log import PartitionLog
from tidelog.chaos.checkers.cluster.board import ClusterBoard, PartitionBoard
from tidelog.chaos.checkers.log.derived import Derived, check_derived
from tidelog.chaos.checkers.log.medium import seen_bytes
from tidelog.chaos.sim.ports.medium import Medium


class LivesWatch:
    """Of one run."""

    def __init__(self, board: ClusterBoard) -> None:
        self._board = board
        self._before: dict[tuple[str, str], Derived] = {}
        self._watermarks: dict[tuple[str, str], int] = {}

    def on_death(self, node: str, board: PartitionBoard, log: PartitionLog) -> None:
        """The process ends; its page cache stays."""
        if log.failure is None:
            self._before[node, board.name] = Derived(log)

    def on_start(self, node: str, board: PartitionBoard, log: PartitionLog) -> None:
        """Its next life has opened the log."""
        before = self._before.pop((node, board.name), None)
        if before is None or board.excuse is not None or log.cut_count:
            return
        for violation in before.compare(Derived(log), f"{board.name} at {node}"):
            self._board.report(violation)

    def forget(self, node: str) -> None:
        """Its directory is another one now."""
        for key in [each for each in self._before if each[0] == node]:
            del self._before[key]

    def check_derived(
        self, node: str, board: PartitionBoard, log: PartitionLog, medium: Medium
    ) -> None:
        """Index, epochs and producers are what the bytes give; nothing is under way."""
        for violation in check_derived(log, functools.partial(seen_bytes, medium)):
            self._board.report(f"{violation} ({board.name} at {node})")

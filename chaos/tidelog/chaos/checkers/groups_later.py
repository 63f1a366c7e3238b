"""What members of whole nodes were answered, judged once the log of `__groups` is read.

Owns what has to wait for the end: a simulation of whole nodes sees the log only then. What members
read at one time is judged at once.
"""

from typing import Final

from tidelog.broker.groups.messages import AppendRecords, StoredRecord
from tidelog.broker.groups.records import MEANINGLESS
from tidelog.broker.log.names import PartitionKey
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.trace import Trace


class LaterWatch(GroupsWatch):
    """A watch that is shown the log at the end."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._told: Final[list[tuple[str, str, dict[PartitionKey, int]]]] = []
        self._acknowledged: Final[list[tuple[str, PartitionKey, int, str]]] = []
        self._fetched: Final[list[tuple[str, PartitionKey, int]]] = []
        self._read_last: Final[dict[tuple[str, PartitionKey], str]] = {}
        self.acknowledged = 0
        self.moves = 0
        """How often a partition was read by another member than before."""

    def on_assignment(self, group: str, member_id: str, told: dict[PartitionKey, int]) -> None:
        """Kept for the end."""
        self._told.append((group, member_id, told))

    def on_commit_acknowledged(self, group: str, key: PartitionKey, offset: int, by: str) -> None:
        """Kept for the end."""
        self.acknowledged += 1
        self._acknowledged.append((group, key, offset, by))

    def on_fetched(self, group: str, key: PartitionKey, offset: int, sent_ns: int) -> None:
        """Kept for the end: when it was committed the log does not say."""
        del sent_ns
        self._fetched.append((group, key, offset))

    def on_reading(self, group: str, member_id: str, keys: list[PartitionKey]) -> None:
        """As always; counted, because the log is not there yet."""
        for key in keys:
            before = self._read_last.get((group, key), member_id)
            self.moves += before != member_id
            self._read_last[group, key] = member_id
        super().on_reading(group, member_id, keys)

    def judge_record(self, key: bytes, value: bytes | None) -> None:
        """The next committed record of a partition of `__groups`."""
        if key == MEANINGLESS:
            return
        self.on_committed(AppendRecords(token=1, records=(StoredRecord(key, value),)))

    def judge_answers(self) -> None:
        """Once all records were shown."""
        for group, member_id, told in self._told:
            super().on_assignment(group, member_id, told)
        for group, key, offset, by in self._acknowledged:
            super().on_commit_acknowledged(group, key, offset, by)
        for group, key, offset in self._fetched:
            values = self.offsets.get((group, key), [])
            if offset >= 0 and not any(each.offset == offset for each in values):
                self.violations.append(f"wrong_fetch: {offset} of {key} in {group}")

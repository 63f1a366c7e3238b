"""The log of `__groups` as its leaders see it: appended, replicated, or lost with its leader.

Owns what is committed. Only the leader of the newest epoch can commit; of what an older one had in
flight a beginning may survive. The committed part is kept as compaction keeps it: the last value of
each key, tombstones now and then.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.groups.state.messages import AppendRecords, StoredRecord
from tidelog.chaos.sim.base.seeds import SeededRandom


class InFlight(msgspec.Struct, frozen=True):
    """An append of the present leader that is not committed yet."""

    leader_epoch: int
    append: AppendRecords


class GroupsLog:
    """One partition's."""

    def __init__(self, random: SeededRandom, on_committed: Callable[[AppendRecords], None]) -> None:
        self._random: Final = random
        self._on_committed: Final = on_committed
        self._last: dict[bytes, bytes | None] = {}
        self.leader_epoch = 0
        self.in_flight: list[InFlight] = []
        self.commits = 0

    def records(self) -> list[StoredRecord]:
        """What is committed, in an order that compaction could leave."""
        return [StoredRecord(key, value) for key, value in self._last.items()]

    def append(self, leader_epoch: int, append: AppendRecords) -> bool:
        """False: another leads by now."""
        if leader_epoch != self.leader_epoch:
            return False
        self.in_flight.append(InFlight(leader_epoch, append))
        return True

    def commit_next(self, leader_epoch: int) -> int:
        """The oldest in flight is replicated; its token, 0: there is none of this epoch."""
        if leader_epoch != self.leader_epoch or not self.in_flight:
            return 0
        append = self.in_flight.pop(0).append
        self._commit(append)
        return append.token

    def _commit(self, append: AppendRecords) -> None:
        self.commits += 1
        self._on_committed(append)
        for record in append.records:
            self._last.pop(record.key, None)
            if record.value is not None or self._random.chance(0.5):
                self._last[record.key] = record.value

    def change_leader(self, *, is_end_lost: bool) -> int:
        """How many appends in flight were lost."""
        survivors = len(self.in_flight)
        if is_end_lost:
            survivors = self._random.below(len(self.in_flight) + 1)
        for each in self.in_flight[:survivors]:
            self._commit(each.append)
        lost = len(self.in_flight) - survivors
        self.in_flight.clear()
        self.leader_epoch += 1
        return lost

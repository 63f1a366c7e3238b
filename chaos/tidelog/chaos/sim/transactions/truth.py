"""What brokers of the cores' run agree on: who leads each log, and what of it is committed.

Owns the outcome of every replication and election. A leader that was deposed may append as long as
it has not heard of it: nothing of that is ever committed. Of what a leader had appended when it was
deposed any first part survives.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.transactions.state.messages import StoredRecord
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.wire.ids import PartitionKey


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One batch: of data, of a marker, of a coordinator's records, or of a group's offset."""

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    value: str = ""
    position: tuple[str, int, int] | None = None
    """A group's offset: group, position, state of the fold."""
    is_marker: bool = False
    is_commit: bool = False
    coordinator_epoch: int = -1
    records: tuple[StoredRecord, ...] = ()


class ReplicatedLog:
    """One partition."""

    def __init__(self, name: str, key: PartitionKey, leader: str) -> None:
        self.name: Final = name
        self.key: Final = key
        self.leader = leader
        self.epoch = 1
        self.committed: list[Entry] = []
        self.tail: list[Entry] = []
        """Of the present leader, behind what is committed."""
        self.moves = 0

    def append(self, epoch: int, entry: Entry) -> None:
        """By whoever takes itself for the leader."""
        if epoch == self.epoch:
            self.tail.append(entry)


class Truth:
    """Of one run."""

    def __init__(self, random: SeededRandom) -> None:
        self._random = random
        self.logs: dict[str, ReplicatedLog] = {}
        self.by_key: dict[PartitionKey, ReplicatedLog] = {}
        self.on_committed: list[Callable[[ReplicatedLog, Entry], None]] = []
        """Told of each entry that no failover takes back any more, in order."""
        self.on_moved: list[Callable[[ReplicatedLog], None]] = []
        self.next_producer_id = 1_000

    def add(self, log: ReplicatedLog) -> None:
        """One more partition."""
        self.logs[log.name] = self.by_key[log.key] = log

    def commit(self, log: ReplicatedLog, epoch: int, end_offset: int) -> bool:
        """Followers have it up to there; False: they follow somebody else by now."""
        if epoch != log.epoch:
            return False
        while log.tail and log.tail[0].offset < end_offset:
            self._commit_one(log)
        return True

    def move(self, log: ReplicatedLog, leader: str) -> None:
        """Another broker leads from now on, or the same one anew."""
        kept = self._random.below(len(log.tail) + 1)
        for _ in range(kept):
            self._commit_one(log)
        log.tail.clear()
        log.leader = leader
        log.epoch += 1
        log.moves += 1
        for tell in self.on_moved:
            tell(log)

    def grant(self, count: int) -> int:
        """Producer ids that nobody else ever uses; the first of them."""
        first, self.next_producer_id = self.next_producer_id, self.next_producer_id + count
        return first

    def _commit_one(self, log: ReplicatedLog) -> None:
        entry = log.tail.pop(0)
        assert entry.offset == len(log.committed), f"{entry.offset} in {log.name} leaves a gap"
        log.committed.append(entry)
        for tell in self.on_committed:
            tell(log, entry)

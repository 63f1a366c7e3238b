"""What one node's quorum directory holds, for cores alone: flushed values and writes under way.

The durable content is the watch's own; here stand the writes that no flush has covered, the states
of snapshots, and damage at rest. It must never lose what a flush covered, except by bits that rot.
"""

from collections.abc import Sequence

import msgspec

from tidelog.chaos.checkers.raft.content import Content
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.metadata_quorum.raft.effects import Persist, ResetLog
from tidelog.metadata_quorum.raft.types import (
    HardState,
    MemberId,
    Members,
    Recovered,
    Repair,
    SnapshotId,
)
from tidelog.wire.ids import LogIndex


class NodeDisk:
    """One directory; a wiped one is replaced by another."""

    def __init__(self, member_id: MemberId, bootstrap: Members) -> None:
        self.member_id = member_id
        self.bootstrap = bootstrap
        self.pending: list[Persist | ResetLog] = []
        self.flushing = 0
        """How many of the pending ones the flush under way covers."""
        self.states: dict[SnapshotId, Sequence[bytes]] = {}
        self.damaged: dict[int, None] = {}
        """Indexes of entries with a bit flipped."""

    def on_flushed(self, effects: Sequence[Persist | ResetLog]) -> None:
        """What was cut off cannot be found damaged any more."""
        if not self.damaged:
            return
        for effect in effects:
            if isinstance(effect, ResetLog):
                self.damaged.clear()
            elif effect.truncate_from is not None:
                cut = effect.truncate_from
                self.damaged = {index: None for index in self.damaged if index < cut}

    def crash(
        self, flushed: Content, random: SeededRandom, faults: Faults, *, is_machine: bool
    ) -> Content:
        """What is left: everything flushed, and of the rest a first part."""
        left = flushed.copy()
        pending, self.pending, self.flushing = self.pending, [], 0
        subject = f"n{self.member_id.node_id}"
        may_lose = faults.is_active(FaultKind.LOST_WRITE) or not is_machine
        for effect in pending:
            if may_lose and random.chance(0.5):
                if is_machine:
                    faults.took_effect(FaultKind.LOST_WRITE, subject)
                break
            if is_machine and faults.is_active(FaultKind.TORN_WRITE) and random.chance(0.7):
                torn = _torn(effect, random)
                if torn is not None:
                    faults.took_effect(FaultKind.TORN_WRITE, subject)
                    left.perform(torn)
                    self.on_flushed([torn])
                    break
            left.perform(effect)
            self.on_flushed([effect])
        return left

    def recover(self, left: Content) -> Recovered:
        """As storage does: damage is found, and noted as a repair."""
        hard_state = left.hard_state
        entries = left.entries
        self.damaged = {
            index: None for index in self.damaged if left.first_index <= index <= left.last_index
        }
        repair = hard_state.repair
        begins = list(self.damaged) + ([] if repair is None else [int(repair.from_index)])
        if begins:
            from_index = min(begins)
            last_term, last_index = left.promised_last()
            hard_state = HardState(
                term=hard_state.term,
                voted_for=hard_state.voted_for,
                repair=Repair(
                    from_index=LogIndex(from_index), last_index=last_index, last_term=last_term
                ),
            )
            entries = entries[: max(0, from_index - left.first_index)]
        return Recovered(
            hard_state=hard_state,
            snapshot=left.snapshot,
            bootstrap=self.bootstrap,
            entries=tuple(entries),
        )


def _torn(effect: Persist | ResetLog, random: SeededRandom) -> Persist | None:
    """A first part of a write: the cut, some entries, not yet the hard state."""
    if isinstance(effect, ResetLog) or not effect.entries:
        return None
    count = random.below(len(effect.entries) + 1)
    return msgspec.structs.replace(effect, entries=effect.entries[:count], hard_state=None)

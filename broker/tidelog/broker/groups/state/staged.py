"""Offsets that a transaction has sent to a group and that are not decided: staged offsets. Pure.

Owns their shape in memory. A transaction of one producer sends offsets to a group once or several
times; each time is a *part*, a record of its own under its own key, so that what was sent is
written once. A later part replaces what an earlier one says of a partition.

    staged ──(its marker: commit)──▶ decided ──▶ folded: ordinary offsets, and tombstones for parts
      │                                  │
      └──────(its marker: abort)─────────┴─────▶ folded: tombstones only
"""

from collections.abc import Iterable, Mapping

import msgspec

from tidelog.broker.transactions.state.answers import Identity
from tidelog.broker.transactions.state.states import Decision
from tidelog.wire.calls.groups import OffsetToCommit
from tidelog.wire.ids import PartitionKey

Part = Mapping[PartitionKey, OffsetToCommit]


class StagedTransaction(msgspec.Struct, kw_only=True):
    """What one transaction has sent to one group."""

    identity: Identity
    transactional_id: str
    since_ms: int
    """Wall time of its first part."""
    parts: dict[int, Part] = msgspec.field(default_factory=dict)
    """By number, in the order in which they were sent."""
    decision: Decision | None = None
    """Of its marker; None: it is in progress. What is decided is folded in the same step, or, if
    an append of it is in flight, as soon as that is over."""

    def offsets(self) -> dict[PartitionKey, OffsetToCommit]:
        """What counts once it is committed."""
        found: dict[PartitionKey, OffsetToCommit] = {}
        for number in sorted(self.parts):
            found.update(self.parts[number])
        return found

    def next_number(self) -> int:
        """Of a part that is sent now."""
        return max(self.parts, default=-1) + 1


def holders(
    staged: Iterable[StagedTransaction],
) -> dict[PartitionKey, StagedTransaction]:
    """Which transaction holds which partition; of several the one that came first."""
    found: dict[PartitionKey, StagedTransaction] = {}
    for transaction in staged:
        for part in transaction.parts.values():
            for key in part:
                found.setdefault(key, transaction)
    return found

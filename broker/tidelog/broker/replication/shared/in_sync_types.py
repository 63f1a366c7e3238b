"""What the policy of in-sync sets is told and what it wants done. Pure."""

import enum
from typing import Protocol

import msgspec

from tidelog.broker.directory.core.positions import FollowerAt
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionKey,
)


class Brokers(Protocol):
    """What the image says of the brokers now."""

    def epoch_of(self, broker_id: BrokerId) -> BrokerEpoch | None:
        """Of its registration; None: it has none."""

    def is_able(self, broker_id: BrokerId) -> bool:
        """Whether the controller would let it into a set: not fenced, not stopping."""


class Led(msgspec.Struct, frozen=True, kw_only=True):
    """What the image says of a partition that this broker leads."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]
    """The committed set, this broker included."""
    last_replica: BrokerId | None = None
    """The only one that a reassignment under way will leave."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Let the owner of the log wait for these from now on, then say `counted` with the round."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    others: tuple[BrokerId, ...]
    """Without this broker: the committed set, and whoever is on the way into it."""
    in_sync_count: int
    """Of the committed set."""
    positions: tuple[FollowerAt, ...]
    """Where `others` stand, as far as that is known: nobody else says it once more."""
    round: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An in-sync set to ask the controller for."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    members: tuple[tuple[BrokerId, BrokerEpoch], ...]
    is_withdrawal: bool = False
    """The committed set as it is, with a new partition epoch: what was asked for before, and was
    not answered, can take effect no more."""
    is_flushed: bool = False
    """What is committed is on the last replica's disk, and nothing will be before it is."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change."""

    is_made: bool
    is_unknown: bool = False
    """It may have been made, or be made yet."""
    partition_epoch: PartitionEpoch = PartitionEpoch(-1)
    """The present one, where the controller said it."""


class Asking(enum.Enum):
    """How far the change has come that is wanted, if any is.

    NOTHING ── asked ──▶ FIRST ── made ──▶ MADE ── the image shows it ──▶ NOTHING
       ▲                  │ ├── not answered ──▶ OPEN ── asked again ──▶ AGAIN ── made ──▶ MADE
       └──── refused ─────┘ │                    ▲                        │
                            │                    └── refused: withdrawn ──┤
                            └────────────────────── not answered ─────────┘
    """

    NOTHING = enum.auto()
    """Nobody was asked for anything at this partition epoch, or the answer was a refusal."""
    FIRST = enum.auto()
    """It is on its way, and no copy of it was before."""
    OPEN = enum.auto()
    """An earlier copy may still be let in: it, or its withdrawal, is asked for until answered."""
    AGAIN = enum.auto()
    """On its way, where an earlier copy may still be let in."""
    MADE = enum.auto()
    """Counted until the image shows it."""

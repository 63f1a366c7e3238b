"""What happens to a registered broker: it beats, is fenced, stops, is emptied, is removed.

Pure. Owns a broker's states after its registration:

    fenced ──caught up, wants_unfence──→ unfenced ──wants_shut_down──→ stopping
       ↑                                    │                             │
       └──── session expired ───────────────┴─────────────────────────────┘

Unfencing is also what raises the expectation of its data directories (`directory_epochs`): the
broker has stored its epoch in each of them before it asked.

And, besides, `is_draining`, which an operator sets and calls off. A stop of the walk "a broker
dies": whatever changes, `leaders.settle_broker` says what becomes of its partitions.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.directory_epochs import epochs_when_served
from tidelog.metadata.eligibility import may_take_replicas
from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import (
    BrokerChangeRecord,
    BrokerDirectory,
    BrokerRemovedRecord,
    DirectoryEpochsRecord,
    MetadataRecord,
)
from tidelog.metadata.refusals.common import unknown_broker
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.partitions.in_sync import check_broker_epoch
from tidelog.metadata_quorum.controller.partitions.leaders import settle_broker
from tidelog.metadata_quorum.controller.partitions.state import ReplicaView
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId
from tidelog.wire.refusals import invalid

_MISSING_MAX: Final = 10
"""Directories that a refusal names."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself on its session stream."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    applied_index: int
    wants_unfence: bool = False
    wants_shut_down: bool = False
    directories: tuple[BrokerDirectory, ...] = ()
    """All of them when one changed; otherwise empty."""
    wall_ms: int | None = None
    """What its clock shows; None: it is of a release that does not tell."""
    clock_off_own_ms: int | None = None
    """How far its clock is off the time that it stored last, if that keeps it from deleting."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller answers."""

    is_fenced: bool
    may_shut_down: bool = False
    remaining_leaders: int = 0
    """Still to be moved before it may stop: led here although others could follow."""


class DrainState(msgspec.Struct, frozen=True, kw_only=True):
    """What a drain has before it."""

    remaining_replicas: int


def beat(image: Image, heartbeat: Heartbeat, *, required_index: int) -> Decision[BrokerState]:
    """A heartbeat. Most change nothing and have no records.

    `required_index`: what a broker must have applied before it may lead; the caller keeps it at the
    commit index of the moment when the broker registered, or above.
    """
    broker_id, epoch = heartbeat.broker_id, heartbeat.broker_epoch
    tried = f"hear of broker {broker_id}"
    check_broker_epoch(image, broker_id, epoch, tried=tried)
    records: list[MetadataRecord] = []
    change = _change(image, heartbeat, required_index)
    after = image
    if change is not None:
        records += (change, *_expectations(image, change))
        after = apply_entry(image, records)
    if change is not None or after.brokers[broker_id].is_shutting_down:
        # A stopping broker is looked at again with each beat: others may have caught up since.
        records += settle_broker(after, broker_id)
    return Decision(records=tuple(records), answer=_state(after, broker_id, records))


def fence(image: Image, broker_id: BrokerId, epoch: BrokerEpoch) -> Decision[bool]:
    """Its session ended, or it has stopped. False: it was fenced, or is another process."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.is_fenced:
        return Decision(answer=False)
    change = BrokerChangeRecord(broker_id=broker_id, epoch=epoch, is_fenced=True)
    after = apply_entry(image, (change,))
    return Decision(records=(change, *settle_broker(after, broker_id)), answer=True)


def drain(image: Image, broker_id: BrokerId, *, is_cancelled: bool) -> Decision[DrainState]:
    """Give the broker no more replicas; `reassignment_plan.drain_round` moves those that it has."""
    what = "call off emptying" if is_cancelled else "empty"
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise unknown_broker(broker_id, image, tried=f"{what} broker {broker_id}")
    held = 0 if is_cancelled else image.held_by(broker_id).count
    warnings = () if is_cancelled else _drain_warnings(image, broker_id)
    if broker.is_draining is not is_cancelled:
        return Decision(answer=DrainState(remaining_replicas=held), warnings=warnings)
    if not is_cancelled and not _others_able(image, broker_id):
        # Nothing could move, and no topic could be created any more: also not by mistake.
        raise invalid(
            f"{what} broker {broker_id}",
            "no other broker is alive and takes replicas",
            "Start or add another broker first. A node that is only to stop is stopped, not "
            "emptied.",
        )
    change = BrokerChangeRecord(
        broker_id=broker_id, epoch=broker.epoch, is_draining=not is_cancelled
    )
    return Decision(
        records=(change,), answer=DrainState(remaining_replicas=held), warnings=warnings
    )


def remove(image: Image, broker_id: BrokerId) -> Decision[None]:
    """Forget a broker that is stopped and holds nothing."""
    tried = f"remove broker {broker_id}"
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise unknown_broker(broker_id, image, tried=tried)
    if not broker.is_fenced:
        raise invalid(tried, "it is alive", "Stop its process first.")
    held = image.held_by(broker_id).count
    if held:
        raise invalid(
            tried,
            f"it holds {held} replicas",
            f"Start it and empty it with `tidelog broker drain {broker_id}` first.",
        )
    return Decision(
        records=(BrokerRemovedRecord(broker_id=broker_id, epoch=broker.epoch),), answer=None
    )


def _change(image: Image, heartbeat: Heartbeat, required_index: int) -> BrokerChangeRecord | None:
    broker = image.brokers[heartbeat.broker_id]
    unfences = (
        heartbeat.wants_unfence
        and not heartbeat.wants_shut_down
        and broker.is_fenced
        and heartbeat.applied_index >= required_index
    )
    stops = heartbeat.wants_shut_down and not broker.is_shutting_down
    directories = _directories(broker.directories, heartbeat)
    if not unfences and not stops and directories is None:
        return None
    return BrokerChangeRecord(
        broker_id=broker.broker_id,
        epoch=broker.epoch,
        is_fenced=False if unfences else None,
        is_shutting_down=True if stops else None,
        directories=directories,
    )


def _expectations(image: Image, change: BrokerChangeRecord) -> tuple[MetadataRecord, ...]:
    """Of the directories of a broker that is unfenced, or that is and has found one again."""
    broker = image.brokers[change.broker_id]
    if broker.is_fenced and change.is_fenced is not False:
        return ()
    directories = change.directories or broker.directories
    served = epochs_when_served(broker.directory_epochs, directories, broker.epoch)
    if served == broker.directory_epochs:
        return ()
    return (
        DirectoryEpochsRecord(
            is_optional=True,
            broker_id=broker.broker_id,
            epoch=broker.epoch,
            directories=served,
        ),
    )


def _directories(
    known: Sequence[BrokerDirectory], heartbeat: Heartbeat
) -> tuple[BrokerDirectory, ...] | None:
    """None: as known. A running process can lose a directory or find it again, not swap it."""
    if not heartbeat.directories or tuple(heartbeat.directories) == tuple(known):
        return None
    expected = sorted(each.uuid for each in known)
    if sorted(each.uuid for each in heartbeat.directories) != expected:
        named = ", ".join(uuid.hex() for uuid in expected[:_MISSING_MAX])
        raise TidelogError(
            ErrorCode.INVALID_ARGUMENT,
            tried=f"hear of the data directories of broker {heartbeat.broker_id}",
            happened=f"it registered with {named or 'none'}, and names others now",
            hint="Name all the directories that the broker registered with, failed ones included.",
        )
    return heartbeat.directories


def _state(after: Image, broker_id: BrokerId, records: Sequence[MetadataRecord]) -> BrokerState:
    broker = after.brokers[broker_id]
    if not broker.is_shutting_down:
        return BrokerState(is_fenced=broker.is_fenced)
    if records:
        after = apply_entry(after, [each for each in records if _is_partition(each)])
    remaining = sum(
        any(
            ReplicaView(after.brokers, partition).is_usable(each)
            for each in partition.replicas
            if each != broker_id
        )
        for _, partition in after.partitions_in(after.led_by(broker_id))
    )
    return BrokerState(
        is_fenced=broker.is_fenced, may_shut_down=remaining == 0, remaining_leaders=remaining
    )


def _is_partition(record: MetadataRecord) -> bool:
    return not isinstance(record, BrokerChangeRecord | DirectoryEpochsRecord)


def _others_able(image: Image, broker_id: BrokerId) -> list[BrokerId]:
    return [
        each.broker_id
        for each in image.brokers.values()
        if may_take_replicas(each) and each.broker_id != broker_id
    ]


def _drain_warnings(image: Image, broker_id: BrokerId) -> tuple[str, ...]:
    able = _others_able(image, broker_id)
    stuck = sum(
        not any(each not in partition.replicas for each in able)
        for _, partition in image.partitions_in(image.held_by(broker_id))
    )
    if not stuck:
        return ()
    sentence = (
        f"{stuck} replicas have nowhere to go: {len(able)} other brokers can take replicas, and "
        "each holds one of the same partition already."
    )
    return (sentence,)

"""What the records of brokers do to the image."""

import msgspec

from tidelog.metadata.apply.draft import Draft
from tidelog.metadata.image.image import BrokerImage
from tidelog.metadata.records.broker import (
    BrokerChangeRecord,
    BrokerRecord,
    BrokerRemovedRecord,
    DirectoryEpochsRecord,
    FenceRecord,
)


def apply_broker(draft: Draft, record: BrokerRecord) -> None:
    """A registration; draining is the operator's wish and outlives it, and so does what is known
    of the directories."""
    known = draft.brokers.get(record.broker_id)
    assert known is None or known.epoch < record.epoch, (
        f"broker {record.broker_id} registers with epoch {record.epoch}, not above its last one"
    )
    draft.last_broker_epoch = max(draft.last_broker_epoch, record.epoch)
    registered = BrokerImage(
        broker_id=record.broker_id,
        epoch=record.epoch,
        incarnation=record.incarnation,
        listeners=record.listeners,
        host_name=record.host_name,
        rack=record.rack,
        is_fenced=record.is_fenced,
        is_draining=known is not None and known.is_draining,
        directories=record.directories,
        features=record.features,
        boot_id=record.boot_id,
        release=record.release,
        unflushed_since=record.unflushed_since,
        directory_epochs=() if known is None else known.directory_epochs,
    )
    draft.brokers.put(record.broker_id, registered)


def apply_fence(draft: Draft, record: FenceRecord) -> None:
    """Means nothing for a registration that is not the present one."""
    known = draft.brokers.get(record.broker_id)
    assert known is not None, f"broker {record.broker_id} is fenced before it was registered"
    if known.epoch == record.epoch:
        changed = msgspec.structs.replace(known, is_fenced=record.is_fenced)
        draft.brokers.put(record.broker_id, changed)


def apply_broker_change(draft: Draft, record: BrokerChangeRecord) -> None:
    """What is not None replaces what was known."""
    known = _registered(draft, record)
    if record.is_fenced is not None:
        known = msgspec.structs.replace(known, is_fenced=record.is_fenced)
    if record.is_shutting_down is not None:
        known = msgspec.structs.replace(known, is_shutting_down=record.is_shutting_down)
    if record.is_draining is not None:
        known = msgspec.structs.replace(known, is_draining=record.is_draining)
    if record.directories is not None:
        known = msgspec.structs.replace(known, directories=record.directories)
    draft.brokers.put(record.broker_id, known)


def apply_directory_epochs(draft: Draft, record: DirectoryEpochsRecord) -> None:
    """It replaces what was expected before."""
    known = _registered(draft, record)
    changed = msgspec.structs.replace(known, directory_epochs=record.directories)
    draft.brokers.put(record.broker_id, changed)


def apply_broker_removed(draft: Draft, record: BrokerRemovedRecord) -> None:
    """Its settings stay: they may be meant for its successor of the same id."""
    _registered(draft, record)
    assert draft.holds_nothing(record.broker_id), (
        f"broker {record.broker_id} is removed while it holds replicas"
    )
    draft.brokers.remove(record.broker_id)


def _registered(
    draft: Draft, record: BrokerChangeRecord | BrokerRemovedRecord | DirectoryEpochsRecord
) -> BrokerImage:
    known = draft.brokers.get(record.broker_id)
    assert known is not None, f"broker {record.broker_id} changes before it was registered"
    assert known.epoch == record.epoch, (
        f"broker {record.broker_id} has epoch {known.epoch}, the change is for {record.epoch}"
    )
    return known

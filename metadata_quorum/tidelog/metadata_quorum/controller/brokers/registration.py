"""Brokers come: registration, and which of their replicas still count.

Pure. It must never give an epoch twice: an older process of the same id would not be fenced. What
follows while a broker is there and when it goes is `brokers.changes`'.

A replica keeps what it was (in sync, eligible) over a start of its process if nothing acknowledged
can be missing: the process shut down in order, or the topic waits for flushes, or the machine did
not boot in between. Otherwise it counts as one that may lack records. That a topic waits for
flushes helps only where it did so before the machine's memory held anything that is not flushed.

All of that speaks of the directory in which the process before this one worked. An older copy of it
that was put in its place brings all of these signs along, so the epoch that is stored in each
directory is looked at first (`directory_epochs`): the replicas in one that went back in time lack
records, whatever else holds.
"""

from typing import Final

from tidelog.metadata.apply.entries import apply_entry
from tidelog.metadata.broker_reports import Registration
from tidelog.metadata.directory_epochs import (
    STORED_EPOCH_MAX,
    epoch_above,
    epochs_at_registration,
    has_gone_back,
)
from tidelog.metadata.eligibility import in_sync_min, is_flush_sync
from tidelog.metadata.image.image import BrokerImage, Image, PartitionImage, TopicImage
from tidelog.metadata.records.entries import BrokerRecord, DirectoryEpochsRecord, MetadataRecord
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.metadata_quorum.controller.features import check_broker_speaks
from tidelog.metadata_quorum.controller.partitions.state import PartitionState, ReplicaView
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerEpoch
from tidelog.wire.refusals import invalid

INCARNATION_BYTES: Final = 16
DIRECTORY_UUID_BYTES: Final = 16
DIRECTORIES_MAX: Final = 100
TEXT_LENGTH_MAX: Final = 255
"""Of a rack's, a host's and a release's name, and of a boot id."""


def register(image: Image, registration: Registration, *, is_living: bool) -> Decision[BrokerEpoch]:
    """The broker with a new epoch, fenced, and what becomes of the replicas that it holds.

    `is_living`: whether the process registered so far must be taken to live (`Sessions.is_living`).
    """
    tried = f"register broker {registration.broker_id}"
    _validate(registration, tried)
    known = image.brokers.get(registration.broker_id)
    if known is not None and known.incarnation == registration.incarnation:
        return Decision(answer=known.epoch)
    if known is not None and is_living and not _took_over(known, registration):
        raise TidelogError(
            ErrorCode.BROKER_ID_IN_USE,
            tried=tried,
            happened="another process, heard of a moment ago, is registered under this id "
            f"at {_address(known)}",
        )
    _refuse_foreign_directories(image, registration, tried)
    check_broker_speaks(image, registration.features, tried=tried)
    record = plan_registration(image, registration)
    records = (record, *_expectations(known, registration, record.epoch))
    after = apply_entry(image, records)
    return Decision(
        records=(*records, *_settle_registered(after, known, registration)), answer=record.epoch
    )


def plan_registration(image: Image, registration: Registration) -> BrokerRecord:
    """A registration gets an epoch above every earlier one, so that an older process is fenced."""
    known = image.brokers.get(registration.broker_id)
    return BrokerRecord(
        broker_id=registration.broker_id,
        epoch=epoch_above(image.last_broker_epoch, registration.stored_epochs),
        incarnation=registration.incarnation,
        listeners=dict(registration.listeners),
        host_name=registration.host_name,
        rack=registration.rack,
        is_fenced=True,
        directories=registration.directories,
        features=dict(registration.features),
        boot_id=registration.boot_id,
        release=registration.release,
        unflushed_since=None if known is None else _still_unflushed_since(known, registration),
    )


def _expectations(
    known: BrokerImage | None, registration: Registration, epoch: BrokerEpoch
) -> tuple[MetadataRecord, ...]:
    """What is expected of its directories now, if that is something else than before."""
    before = () if known is None else known.directory_epochs
    expected = epochs_at_registration(before, registration.directories, registration.stored_epochs)
    if expected == before:
        return ()
    return (
        DirectoryEpochsRecord(
            is_optional=True,
            broker_id=registration.broker_id,
            epoch=epoch,
            directories=expected,
        ),
    )


def _settle_registered(
    after: Image, known: BrokerImage | None, registration: Registration
) -> tuple[MetadataRecord, ...]:
    """It leads nothing until it is unfenced; what it may have lost does not count any more."""
    if known is None:
        return ()
    records: list[MetadataRecord] = []
    broker_id = registration.broker_id
    for topic, partition in after.partitions_in(after.held_by(broker_id)):
        state = PartitionState.of(topic.topic_id, partition)
        if has_gone_back(after.brokers[broker_id], partition):
            state.go_back(broker_id)
        elif _may_lack_records(known, registration, topic):
            state.lose((broker_id,))
        _leave_lost_directory(state, partition, registration)
        state.settle(ReplicaView(after.brokers, partition), in_sync_min(topic))
        record = state.record()
        if record is not None:
            records.append(record)
    return tuple(records)


def _may_lack_records(known: BrokerImage, registration: Registration, topic: TopicImage) -> bool:
    is_same_boot = bool(known.boot_id) and known.boot_id == registration.boot_id
    return not (is_same_boot or _is_clean(known, registration) or _was_flushed(known, topic))


def _was_flushed(known: BrokerImage, topic: TopicImage) -> bool:
    """Whether everything acknowledged that its machine held of the topic was on its disk."""
    if not is_flush_sync(topic):
        return False
    return topic.flushed_since is None or _unflushed_since(known) > topic.flushed_since


def _is_clean(known: BrokerImage, registration: Registration) -> bool:
    return registration.clean_shutdown_epoch == known.epoch


def _unflushed_since(broker: BrokerImage) -> BrokerEpoch:
    return broker.epoch if broker.unflushed_since is None else broker.unflushed_since


def _still_unflushed_since(known: BrokerImage, registration: Registration) -> BrokerEpoch | None:
    """What the process before it stored is in memory still, unless it was flushed as that one shut
    down in order, or the machine has booted since and it is gone. None: nothing is."""
    is_other_boot = bool(
        known.boot_id and registration.boot_id and known.boot_id != registration.boot_id
    )
    if is_other_boot or _is_clean(known, registration):
        return None
    return _unflushed_since(known)


def _leave_lost_directory(
    state: PartitionState, partition: PartitionImage, registration: Registration
) -> None:
    """A directory that the broker does not name any more is gone, and the replica in it with it.

    If it was the last replica with all records it stays there, unusable: the directory may come
    back, and an operator decides otherwise (`leaders.elect_unclean`).
    """
    directory = partition.directory_of(registration.broker_id)
    named = [each.uuid for each in registration.directories]
    online = [each.uuid for each in registration.directories if each.is_online]
    if not directory or directory in named or not online:
        return
    others = [each for each in (*state.in_sync, *state.eligible) if each != registration.broker_id]
    holds_records = len(others) < len(state.in_sync) + len(state.eligible)
    if holds_records and not others:
        return
    state.lose((registration.broker_id,))
    state.move_directory(registration.broker_id, online[partition.partition % len(online)])


def _took_over(known: BrokerImage, registration: Registration) -> bool:
    """Whether the registered process must be dead: this one holds the lock of its directory.

    A lock is told from a copied directory by the boot of the machine, or, where the machine has
    booted since, by the address: this process listens where the other one did.
    """
    held = [each.uuid for each in known.directories]
    if not any(each.uuid in held for each in registration.directories) or not known.boot_id:
        return False
    return known.boot_id == registration.boot_id or dict(known.listeners) == dict(
        registration.listeners
    )


def _refuse_foreign_directories(image: Image, registration: Registration, tried: str) -> None:
    for broker in image.brokers.values():
        if broker.broker_id == registration.broker_id:
            continue
        theirs = [each.uuid for each in broker.directories]
        for directory in registration.directories:
            if directory.uuid in theirs:
                raise invalid(
                    tried,
                    f"its data directory {directory.uuid.hex()} is broker {broker.broker_id}'s",
                    "A copied directory cannot serve a second broker: format a new one.",
                )


def _validate(registration: Registration, tried: str) -> None:
    if registration.broker_id < 0:
        raise invalid(tried, "broker ids begin at 0")
    if len(registration.incarnation) != INCARNATION_BYTES:
        raise invalid(tried, f"an incarnation has {INCARNATION_BYTES} bytes")
    if not registration.listeners:
        raise invalid(tried, "it names no listener")
    if len(registration.directories) > DIRECTORIES_MAX:
        raise invalid(tried, f"it has more than {DIRECTORIES_MAX} data directories")
    uuids = [each.uuid for each in registration.directories]
    if any(len(uuid) != DIRECTORY_UUID_BYTES for uuid in uuids):
        raise invalid(tried, f"the uuid of a directory has {DIRECTORY_UUID_BYTES} bytes")
    if len(dict.fromkeys(uuids)) < len(uuids):
        raise invalid(tried, "two of its data directories have one uuid")
    for uuid, epoch in registration.stored_epochs.items():
        if uuid not in uuids:
            raise invalid(tried, f"it tells of a directory {uuid.hex()} that it does not name")
        if epoch > STORED_EPOCH_MAX:
            raise invalid(tried, f"no broker ever had the epoch {epoch} that it has stored")
    texts = {
        "rack": registration.rack,
        "host": registration.host_name,
        "boot id": registration.boot_id,
        "release": registration.release,
    }
    for what, text in texts.items():
        if len(text) > TEXT_LENGTH_MAX:
            raise invalid(tried, f"its {what} has more than {TEXT_LENGTH_MAX} characters")


def _address(broker: BrokerImage) -> str:
    return broker.listeners.get("cluster") or next(iter(broker.listeners.values()), "?")

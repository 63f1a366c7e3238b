"""How new what lies in a data directory must be, told by the broker epoch that is stored there.

Pure. Owns the expectation that the controller has of each directory, and the judgement of what a
broker says it has found there. It must never let a directory count that holds less than was
acknowledged with it, however it was stopped: a copy brings its clean-shutdown marker along, topics
with `flush=sync` trust the disk, and the machine need not have booted.

Theory of operation. Every registration gets a new broker epoch, E. The process stores E in each of
its directories, durably, before it asks to be unfenced; the controller notes E as each directory's
`served_epoch` in the record that unfences it. Only an unfenced broker is counted in sync, so every
record that was acknowledged with a directory is younger than the storing of the epoch under which
that happened:

    register (E) ─→ store E ─→ ask for it ─→ unfenced: served_epoch = E ─→ acknowledge records

 1. A copy from before E was stored holds an epoch below E, so that it is told from the directory
    that it replaces as soon as the broker was unfenced under E. It went back in time.
 2. A crash before E is stored leaves the epoch before, and a crash before the unfencing leaves E:
    both are at or above `served_epoch`, and nothing was acknowledged under E.
 3. A copy made under E and put back while E is the last epoch cannot be told from the original:
    made after an orderly stop it lacks nothing, made while the process ran it lacks what was
    acknowledged since, and counts all the same. `docs/operations.md` says so.
 4. A directory without an expectation is one that no process has served with that stores epochs:
    it is new, or this is the first start after an upgrade. It counts as it did before.
 5. A process of an older release stores nothing and names nothing: what was expected of its
    directories is forgotten, since it would not be met by what it leaves.
 6. A directory may hold an epoch above all that this metadata ever gave: the metadata went back
    (a restored export, a quorum that lost entries). The next epoch is above that one too, so that
    an epoch of the lost history is never given to the same broker again.

What becomes of the replicas in a directory that went back is `PartitionState.go_back`'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidelog.metadata.image.image import NO_DIRECTORY, NO_LEADER, BrokerImage, Image, PartitionImage
from tidelog.metadata.records.entries import BrokerDirectory, DirectoryEpoch
from tidelog.wire.ids import BrokerEpoch, BrokerId

NO_STORED_EPOCH: Final = BrokerEpoch(-1)
"""The directory was looked at, and holds no epoch."""
STORED_EPOCH_MAX: Final = BrokerEpoch(2**53)
"""A larger one was never given: the next ones would not fit their field for long."""
ABSENT_MAX: Final = 100
"""Directories that a broker does not name any more, of which the expectation is kept."""


class Ineligible(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that may not lead, in words."""

    broker_id: BrokerId
    reason: str
    hint: str


def epochs_at_registration(
    known: Sequence[DirectoryEpoch],
    directories: Sequence[BrokerDirectory],
    stored: Mapping[bytes, BrokerEpoch],
) -> tuple[DirectoryEpoch, ...]:
    """What is expected of each directory, and which of them went back.

    `stored`: what the process found, and will replace, in the directories that it can read.
    """
    expected = {each.uuid: each for each in known}
    kept: list[DirectoryEpoch] = []
    for directory in directories:
        before = expected.pop(directory.uuid, None)
        if directory.uuid in stored:
            kept.append(_judged(directory.uuid, before, stored[directory.uuid]))
        elif before is not None and not directory.is_online:
            # It could not be read: it is judged when it is there again.
            kept.append(before)
    # A directory that is away may come back, as a disk that was unplugged does.
    absent = sorted(expected.values(), key=lambda each: each.served_epoch, reverse=True)
    return (*kept, *absent[:ABSENT_MAX])


def epochs_when_served(
    known: Sequence[DirectoryEpoch], directories: Sequence[BrokerDirectory], epoch: BrokerEpoch
) -> tuple[DirectoryEpoch, ...]:
    """The broker is unfenced under the epoch: it is stored in all that are online."""
    online = [each.uuid for each in directories if each.is_online]
    return tuple(
        DirectoryEpoch(each.uuid, epoch, each.went_back_from, each.went_back_to)
        if each.uuid in online
        else each
        for each in known
    )


def epoch_above(last_epoch: BrokerEpoch, stored: Mapping[bytes, BrokerEpoch]) -> BrokerEpoch:
    """The next epoch: above all that were given, also by metadata that are lost since."""
    return BrokerEpoch(max(last_epoch, *stored.values(), NO_STORED_EPOCH) + 1)


def has_gone_back(broker: BrokerImage, partition: PartitionImage) -> bool:
    """Whether the broker's replica lies in a directory that went back in time.

    Where it is not known in which one it lies, any of them is reason enough.
    """
    gone = [each.uuid for each in broker.directory_epochs if each.went_back_from is not None]
    directory = partition.directory_of(broker.broker_id)
    return bool(gone) and (directory == NO_DIRECTORY or directory in gone)


def ineligible_replicas(image: Image, partition: PartitionImage) -> Iterator[Ineligible]:
    """Replicas that lie in directories which went back and have not been let in since."""
    sure = (*partition.in_sync_replicas, *partition.eligible_replicas)
    for broker_id in sorted(partition.replicas):
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in sure or not has_gone_back(broker, partition):
            continue
        gone = [each for each in broker.directory_epochs if each.went_back_from is not None]
        directory = partition.directory_of(broker_id)
        found = next((each for each in gone if each.uuid == directory), gone[0])
        yield Ineligible(
            broker_id=broker_id,
            reason=f"its data directory went back in time: it held broker epoch "
            f"{found.went_back_to}, and was served under {found.went_back_from}",
            hint=_what_becomes_of_it(partition),
        )


def _what_becomes_of_it(partition: PartitionImage) -> str:
    if partition.leader_id != NO_LEADER:
        return f"It fetches what it lacks from broker {partition.leader_id}, and is in sync then."
    sure = (*partition.in_sync_replicas, *partition.eligible_replicas)
    if sure:
        return f"Start broker {' or '.join(map(str, sure))}: it fetches what it lacks from there."
    return (
        f"The longest log of the brokers {', '.join(map(str, partition.last_known_eligible))} "
        "leads once all of them are there; `tidelog partition elect-leaders --unclean` waits for "
        "nobody."
    )


def _judged(uuid: bytes, before: DirectoryEpoch | None, found: BrokerEpoch) -> DirectoryEpoch:
    if before is None:
        return DirectoryEpoch(uuid, NO_STORED_EPOCH)
    if found >= before.served_epoch:
        return DirectoryEpoch(uuid, before.served_epoch)
    # The expectation stays as it is: a crash before the new epoch is stored changes nothing.
    return DirectoryEpoch(uuid, before.served_epoch, before.served_epoch, found)

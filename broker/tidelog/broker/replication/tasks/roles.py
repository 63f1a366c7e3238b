"""What each replica here is by the image: the only one, a leader, a follower, nobody's.

Glue between the image and those who act on it: owners of logs, the keeper of in-sync sets, the
fetchers. A change is one step on the loop: what comes after it meets the new role everywhere, what
was accepted before it is answered by the owner, in the order of its inbox. It must never let a
replica lead and follow at once. Stops 7 and 8 of a record's walk, and of the walk "a broker dies".

    image ─▶ leads here, alone         ─▶ owner.lead (sole)
          ─▶ leads here                ─▶ in-sync keeper ─▶ owner.lead, again for each set
          ─▶ another leads             ─▶ owner.follow, fetchers pull from it
          ─▶ nobody leads              ─▶ owner.follow, nobody is pulled from

An only replica that does not lead, because its broker is fenced, keeps its role if it was the only
one: nobody else can take over, so what it has accepted is as good as before. One of several that is
left alone without leading follows until it leads: by the rule of now, and by the others of before,
it would commit what is on no disk that is left.
"""

from collections.abc import Callable, Mapping

import msgspec

from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replication.shared.in_sync_types import Led
from tidelog.broker.replication.shared.messages import Followed
from tidelog.broker.replication.tasks.in_sync_keeper import InSyncKeeper
from tidelog.metadata.image.image import NO_LEADER, Image, PartitionImage
from tidelog.wire.ids import BrokerId, LeaderEpoch, PartitionKey

SetFollowed = Callable[[Mapping[PartitionKey, Followed]], None]


class _Role(msgspec.Struct, frozen=True):
    """What the owner was told last."""

    leader_epoch: LeaderEpoch
    leads: bool
    is_sole: bool


class RoleKeeper:
    """One a broker. For each image: `on_image`, then `take` or `drop` for each replica that the
    image changes, then `settle`."""

    def __init__(
        self, broker_id: BrokerId, in_sync: InSyncKeeper, set_followed: SetFollowed
    ) -> None:
        self._broker_id = broker_id
        self._in_sync = in_sync
        self._set_followed = set_followed
        self._roles: dict[PartitionKey, _Role] = {}
        self._followed: dict[PartitionKey, Followed] = {}
        self._has_moved = False
        self._cluster_configuration = Image().cluster_configuration

    def on_image(self, image: Image) -> None:
        """An image is about to be taken over."""
        if image.cluster_configuration is not self._cluster_configuration:
            # The fetchers look for their throttle in it.
            self._cluster_configuration = image.cluster_configuration
            self._has_moved = True
        self._in_sync.on_image(image)

    def take(
        self,
        log: PartitionLog,
        owner: DirectoryOwner,
        partition: PartitionImage,
        *,
        is_flush_sync: bool,
    ) -> None:
        """What the image says of a replica that is served here."""
        assert self._broker_id in partition.replicas, f"{log.key} has no replica here"
        key = log.key
        leads = partition.leader_id == self._broker_id
        role = _Role(partition.leader_epoch, leads, len(partition.replicas) == 1)
        before = self._roles.get(key)
        self._roles[key] = role
        if not leads or role.is_sole:
            self._in_sync.resign(key)
        self._follow(key, self._followed_in(partition, log))
        if leads and not role.is_sole:
            self._in_sync.lead(log, owner, _led(partition), is_flush_sync=is_flush_sync)
        elif role == before:
            return
        elif leads:
            owner.lead(log, role.leader_epoch, others=(), in_sync_count=1, is_sole=True)
        elif not role.is_sole or (before is not None and not before.is_sole):
            # One that was left alone, and does not lead, waits for nobody of before any more.
            owner.follow(log, role.leader_epoch)

    def configure(self, key: PartitionKey, *, is_flush_sync: bool) -> None:
        """The partition's settings have changed."""
        self._in_sync.configure(key, is_flush_sync=is_flush_sync)

    def drop(self, key: PartitionKey) -> None:
        """The replica is not served here any more."""
        self._roles.pop(key, None)
        self._in_sync.resign(key)
        self._follow(key, None)

    def stand_by(self, key: PartitionKey) -> None:
        """Its log is being opened again. Who leads it still may have asked for others to come into
        sync, and goes on counting with them."""
        self._roles.pop(key, None)
        self._follow(key, None)

    def settle(self) -> None:
        """The image is taken over."""
        if self._has_moved:
            self._has_moved = False
            self._set_followed(dict(self._followed))

    def _follow(self, key: PartitionKey, followed: Followed | None) -> None:
        if self._followed.get(key) == followed:
            return
        self._has_moved = True
        if followed is None:
            del self._followed[key]
        else:
            self._followed[key] = followed

    def _followed_in(self, partition: PartitionImage, log: PartitionLog) -> Followed | None:
        if partition.leader_id in (NO_LEADER, self._broker_id) or log.failure is not None:
            return None
        is_in_sync = self._broker_id in partition.in_sync_replicas
        # Of an old copy of its directory that came back later, or was left behind by a move.
        is_from_before = log.leader_epochs.latest < partition.unclean_epoch
        is_recovered = partition.is_recovered_unclean or is_from_before
        return Followed(
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            # A member of the set has all that is committed: nothing of that is ever cut off.
            is_unclean=is_recovered and not is_in_sync,
        )


def _led(partition: PartitionImage) -> Led:
    return Led(
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        in_sync=partition.in_sync_replicas,
        last_replica=partition.last_replica,
    )

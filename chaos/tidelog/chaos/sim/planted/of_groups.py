"""Bugs that the groups suite must find: in membership, in reconciliation, in offsets, in a load.

Each is one that a coordinator of groups could have, or has had somewhere. A substitute stands in
for a function of the core for the time of a run.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.coordination import log
from tidelog.broker.coordination.log import CoordinatorLog
from tidelog.broker.groups.core import judging, membership, offsets, reconcile
from tidelog.broker.groups.core.reconcile import Ownership
from tidelog.broker.groups.core.upkeep import Upkeep
from tidelog.broker.groups.state import replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import NEVER_MS, Group, Member
from tidelog.broker.groups.state.pending import Pending
from tidelog.broker.groups.state.records import AnyValue, Key, OwnedKey, OwnedValue
from tidelog.broker.groups.state.world import World
from tidelog.chaos.sim.planted import Plant, Substitution
from tidelog.wire.calls.groups import Heartbeat, HeartbeatAnswer
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import PartitionKey


def commit_what_was_returned() -> Substitution:
    """A commit counts for a partition that went away and came back since it was sent."""
    original = judging.judge_owner

    def judge_owner(
        group: Group, member: Member, sent_epoch: int, key: PartitionKey
    ) -> TidelogError | None:
        del sent_epoch
        return original(group, member, NEVER_MS, key)

    return Substitution(offsets, "judge_owner", judge_owner)


def commit_what_is_not_owned() -> Substitution:
    """Whoever is a member commits for any partition."""

    def judge_owner(
        group: Group, member: Member, sent_epoch: int, key: PartitionKey
    ) -> TidelogError | None:
        del group, member, sent_epoch, key
        return None

    return Substitution(offsets, "judge_owner", judge_owner)


def give_before_it_is_free() -> Substitution:
    """The new owner does not wait for the former one."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        owners, group.owners = group.owners, {}
        try:
            return original(group, member, owned)
        finally:
            group.owners = owners

    return Substitution(reconcile, "next_step", next_step)


def free_what_is_to_be_given_up() -> Substitution:
    """What a member is told to give up is free at once, as if it had said so."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        after = original(group, member, owned)
        return Ownership(after.epoch, after.assigned, {})

    return Substitution(reconcile, "next_step", next_step)


def free_what_is_not_mentioned() -> Substitution:
    """A heartbeat that does not say what it owns is taken for one that owns nothing."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        return original(group, member, {} if owned is None else owned)

    return Substitution(reconcile, "next_step", next_step)


def free_what_came_last() -> Substitution:
    """What a member was given last, and should have no more, is free without its word."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        after = original(group, member, owned)
        last = {key for key, epoch in member.assigned.items() if epoch == member.epoch}
        kept = {key: epoch for key, epoch in after.revoking.items() if key not in last}
        return Ownership(after.epoch, after.assigned, kept)

    return Substitution(reconcile, "next_step", next_step)


def give_at_the_old_epoch() -> Substitution:
    """What is new is given under the epoch that the member had before."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        after = original(group, member, owned)
        epochs = {
            key: epoch if key in member.assigned else max(1, member.epoch)
            for key, epoch in after.assigned.items()
        }
        return Ownership(after.epoch, epochs, after.revoking)

    return Substitution(reconcile, "next_step", next_step)


def stop_everything_at_a_change() -> Substitution:
    """The old protocol: all is given up whenever the target moves."""
    original = reconcile.next_step

    def next_step(
        group: Group, member: Member, owned: Mapping[PartitionKey, None] | None
    ) -> Ownership:
        if 0 < member.epoch < group.assignment_epoch and member.assigned:
            revoking = {**member.revoking, **member.assigned}
            return Ownership(member.epoch, {}, revoking)
        return original(group, member, owned)

    return Substitution(reconcile, "next_step", next_step)


def answer_before_it_is_committed() -> Substitution:
    """Answers leave with the append."""

    def last_of(self: Pending, group: str | None) -> int:
        del self, group
        return 0

    return Substitution(Pending, "last_of", last_of)


def take_late_heartbeats() -> Substitution:
    """The order of a member's heartbeats is not looked at."""

    def check_order(group: Group, member: Member, heartbeat: Heartbeat) -> None:
        del group, member, heartbeat

    return Substitution(membership, "_check_order", check_order)


def forget_what_is_being_given_up() -> Substitution:
    """Of a member's record only what it may read is taken."""
    original = replay._apply_owned

    def apply_owned(group: Group, member_id: str, value: OwnedValue | None) -> None:
        original(group, member_id, value)
        member = group.members.get(member_id)
        if member is not None:
            for key in member.revoking:
                group.owners.pop(key, None)
            member.revoking = {}

    return Substitution(replay, "_apply_owned", apply_owned)


def write_no_release() -> Substitution:
    """That a member has given something up is known, and not stored."""
    original = Draft.put

    def put(self: Draft, key: Key, value: AnyValue | None) -> None:
        if isinstance(key, OwnedKey) and isinstance(value, OwnedValue) and not value.revoking:
            member = self.group().members.get(key.member_id)
            if member is not None and member.revoking:
                replay.apply(self._groups, key, value)
                return
        original(self, key, value)

    return Substitution(Draft, "put", put)


def tell_an_assignment_once() -> Substitution:
    """An answer that was lost is not made up for."""
    original = membership._answer
    told: dict[tuple[str, str], dict[PartitionKey, int]] = {}

    def answer(
        world: World, group: Group, member: Member, *, is_assignment_told: bool
    ) -> HeartbeatAnswer:
        place = (group.name, member.member_id)
        is_news = is_assignment_told and told.get(place) != member.assigned
        told[place] = member.assigned
        return original(world, group, member, is_assignment_told=is_news)

    return Substitution(membership, "_answer", answer)


def keep_the_silent() -> Substitution:
    """After a load nobody's session is watched."""
    original = Upkeep.on_loaded

    def on_loaded(self: Upkeep) -> None:
        original(self)
        for group in self._world.groups.values():
            for member in group.members.values():
                member.session_due_ms = NEVER_MS

    return Substitution(Upkeep, "on_loaded", on_loaded)


def load_to_the_watermark() -> Substitution:
    """What lies above the watermark when a coordinator loads is not waited for."""

    async def load(self: CoordinatorLog, take: log.Take, take_marker: log.TakeMarker | None) -> int:
        replica = self._replica("load")
        offset, count = replica.log.log_start_offset, 0
        while True:
            found = await replica.directory.reader.read(replica.log, offset, log.READ_BYTES)
            if not found.data:
                return count
            count += await log._take_all(found.data, offset, take, take_marker)
            offset = found.next_offset

    return Substitution(CoordinatorLog, "_load", load)


def _plant(make: Callable[[], Substitution], *expected: str) -> Plant:
    return Plant(make=make, expected=frozenset(expected))


PLANTED: Final[dict[str, Plant]] = {
    "commit_what_was_returned": _plant(commit_what_was_returned, "stale_commit", "fallen_offset"),
    "commit_what_is_not_owned": _plant(commit_what_is_not_owned, "stale_commit", "fallen_offset"),
    "give_before_it_is_free": _plant(give_before_it_is_free, "two_owners", "read_twice"),
    "free_what_is_to_be_given_up": _plant(free_what_is_to_be_given_up, "read_twice"),
    "free_what_is_not_mentioned": _plant(free_what_is_not_mentioned, "read_twice"),
    "free_what_came_last": _plant(free_what_came_last, "invariant"),
    "give_at_the_old_epoch": _plant(give_at_the_old_epoch, "reused_epoch", "stale_commit"),
    "stop_everything_at_a_change": _plant(stop_everything_at_a_change, "stopped_untouched"),
    "answer_before_it_is_committed": _plant(
        answer_before_it_is_committed, "not_committed", "wrong_fetch"
    ),
    "take_late_heartbeats": _plant(take_late_heartbeats, "read_twice", "not_alive"),
    "forget_what_is_being_given_up": _plant(
        forget_what_is_being_given_up, "two_owners", "read_twice"
    ),
    "write_no_release": _plant(write_no_release, "two_owners", "rebuilt_differs"),
    "tell_an_assignment_once": _plant(tell_an_assignment_once, "not_alive"),
    "keep_the_silent": _plant(keep_the_silent, "not_alive"),
    "load_to_the_watermark": _plant(
        load_to_the_watermark, "wrong_fetch", "rebuilt_differs", "stale_commit", "epoch_fell"
    ),
}
"""By name, with the checks that may say that it was this one."""

"""What a coordinator does without being asked: timeouts, put-off work, new topics, expiry. Pure.

Owns the drafts of these; the core appends them. One draft a group: several members that are due in
one moment leave together.
"""

from typing import Final

from tidelog.broker.groups.core import admin, membership, offsets, targets
from tidelog.broker.groups.state import limits, replay
from tidelog.broker.groups.state.draft import Draft
from tidelog.broker.groups.state.group import NEVER_MS, Group, Member
from tidelog.broker.groups.state.messages import BrokersChanged, TopicsChanged
from tidelog.broker.groups.state.notes import DepartureReason
from tidelog.broker.groups.state.topics import TopicView, digest
from tidelog.broker.groups.state.world import World
from tidelog.wire.ids import PartitionKey


class Upkeep:
    """Decides what is due; see the module."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._expiry_due_ms = NEVER_MS

    def on_loaded(self) -> None:
        """Every session, and every time to give something up, begins anew."""
        world = self._world
        self._expiry_due_ms = world.now_ms + limits.EXPIRY_INTERVAL_MS
        for name in sorted(world.groups):
            group = world.groups[name]
            replay.drop_members_without_words(group)
            if group.is_nothing:
                del world.groups[name]
                continue
            for member in group.members.values():
                member.heard_ms = world.now_ms
                member.session_due_ms = world.now_ms + member.words.session_timeout_ms
                if member.revoking:
                    member.revoke_due_ms = world.now_ms + member.patience_ms
                world.timers.watch_member(group, member)

    def on_topics(self, message: TopicsChanged) -> list[Draft]:
        """Groups whose topics or partition counts are others; offsets of topics that are gone."""
        world = self._world
        world.topics = TopicView(message.topics)
        drafts = []
        for name in sorted(world.groups):
            group = world.groups[name]
            draft = Draft(world.groups, name)
            # Put off, it would be told without its name, which no member knows it by.
            is_urgent = self._is_target_gone(group)
            if group.members and (is_urgent or self._is_assignment_old(group)):
                targets.on_change(world, draft, is_urgent=is_urgent)
                drafts.append(draft)
            gone = offsets.gone(world, group)
            if gone:
                drafts.append(self._forget(name, gone))
        return drafts

    def on_brokers(self, message: BrokersChanged) -> list[Draft]:
        """Members of streams that nobody carries any more; what they owned is free at once.

        A static one keeps what it has for its session: whoever comes back under its name takes its
        place without waiting.
        """
        world = self._world
        world.brokers = message.brokers
        drafts = []
        for name in sorted(world.groups):
            gone = {
                each.member_id: DepartureReason.BROKER_GONE
                for each in world.groups[name].members.values()
                if not each.instance_id and each.carrier is not None and world.is_over(each.carrier)
            }
            if gone:
                draft = Draft(world.groups, name)
                membership.remove(world, draft, gone)
                drafts.append(draft)
        return drafts

    def _is_assignment_old(self, group: Group) -> bool:
        """Also of a group whose computation a failover has interrupted."""
        if group.topics_digest != digest(targets.subscribed(self._world, group)):
            return True
        return group.assignment_epoch < group.epoch and group.assign_due_ms == NEVER_MS

    def _is_target_gone(self, group: Group) -> bool:
        """Also of a topic that no member means any more, while the next target is put off."""
        topics = self._world.topics.by_id
        return any(
            key.topic_id not in topics for target in group.targets.values() for key in target
        )

    def _forget(self, name: str, keys: list[PartitionKey]) -> Draft:
        draft = Draft(self._world.groups, name)
        draft.is_atomic = False
        for key in keys:
            offsets.forget(draft, key)
        return draft

    def next_deadline_ms(self) -> int:
        """When `on_tick` may find something."""
        return min(self._world.timers.next_ms(), self._expiry_due_ms)

    def on_tick(self, *, may_expire: bool) -> list[Draft]:
        """All that is due by now; nothing is forgotten for its age by a clock that may be wrong."""
        world = self._world
        drafts = []
        due = world.timers.take_due(world.now_ms)
        for name in sorted(due):
            group = world.groups.get(name)
            if group is not None:
                draft = Draft(world.groups, name)
                self._look_at(draft, group, due[name])
                drafts.append(draft)
        if world.now_ms >= self._expiry_due_ms:
            self._expiry_due_ms = world.now_ms + limits.EXPIRY_INTERVAL_MS
            drafts += self._expire() if may_expire else []
        return drafts

    def _look_at(self, draft: Draft, group: Group, due: list[tuple[str, int]]) -> None:
        world = self._world
        gone: dict[str, DepartureReason] = {}
        for member_id, since_ms in sorted(due):
            member = group.members.get(member_id)
            if member is not None and member.timer_ms == since_ms:
                member.timer_ms = NEVER_MS
                reason = _overdue(member, world.now_ms)
                if reason is None:
                    world.timers.watch_member(group, member)
                else:
                    gone[member_id] = reason
        if gone:
            membership.remove(world, draft, gone)
        if group.assignment_epoch < group.epoch and group.assign_due_ms <= world.now_ms:
            targets.compute(world, draft)

    def _expire(self) -> list[Draft]:
        world = self._world
        drafts = []
        for name in sorted(world.groups):
            group = world.groups[name]
            expired = offsets.expired(world, group)
            if expired:
                drafts.append(self._forget(name, expired))
            is_kept = group.members or group.offsets or group.staged
            is_unused = group.is_stored and not is_kept
            if is_unused and group.empty_since_ms <= world.wall_ms - limits.EMPTY_GROUP_MS:
                draft = Draft(world.groups, name)
                admin.delete(draft)
                drafts.append(draft)
        return drafts


def _overdue(member: Member, now_ms: int) -> DepartureReason | None:
    """Why it has to go; None: it stays."""
    if member.session_due_ms <= now_ms:
        return DepartureReason.SILENT
    return DepartureReason.KEPT_PARTITIONS if member.revoke_due_ms <= now_ms else None

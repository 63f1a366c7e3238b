"""Who is in the groups: members come, leave, die, stand still and come back; topics come and grow.

Owns all lives of members, and the metadata's topics. What it does in ordinary times any operator or
user could do; faults are those that the run has.
"""

from typing import Final

import msgspec

from tidelog.broker.groups.messages import (
    Answer,
    AnyRequest,
    DescribeGroup,
    GroupTopic,
    ListGroups,
    RemoveMembers,
)
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.faults import FaultKind, Faults
from tidelog.chaos.sim.groups.coordinators import Coordinators
from tidelog.chaos.sim.groups.members import MemberAtWork
from tidelog.chaos.sim.groups.plan import Plan, draw_subscription
from tidelog.chaos.sim.groups.wires import Wires
from tidelog.chaos.sim.quorum.agenda import MS, Agenda
from tidelog.chaos.sim.seeds import SeededRandom
from tidelog.chaos.workloads.plain_member import PlainMember
from tidelog.wire.ids import TopicId

STIR_MS: Final = (60, 350)
PAUSE_MS: Final = (100, 2_500)
COME_BACK_MS: Final = (10, 600)
PARTITIONS_MAX: Final = 12


class Crowd:
    """Members and topics of one run."""

    def __init__(
        self,
        agenda: Agenda,
        random: SeededRandom,
        faults: Faults,
        plan: Plan,
        coordinators: Coordinators,
        wires: Wires,
        watch: GroupsWatch,
    ) -> None:
        self._agenda: Final = agenda
        self._random: Final = random
        self._faults: Final = faults
        self._plan: Final = plan
        self._coordinators: Final = coordinators
        self._wires: Final = wires
        self._watch: Final = watch
        self.members: list[MemberAtWork] = []
        self.topics: dict[str, GroupTopic] = {}
        self.is_calm = False
        """After the heal: nobody comes or goes any more."""
        self._lives = 0
        self._made_topics = 0

    def start(self) -> None:
        """Topics, the first members, and what changes from then on."""
        for name, count in self._plan.topics:
            self._make_topic(name, count)
        self._tell_topics()
        for _ in range(self._random.between(1, self._plan.members_max)):
            self.join()
        self._stir()

    # -- topics --------------------------------------------------------------------------------

    def _make_topic(self, name: str, count: int) -> None:
        self._made_topics += 1
        topic_id = TopicId(f"{name}#{self._made_topics}".encode().ljust(16, b"."))
        self.topics[name] = GroupTopic(topic_id, name, count)

    def _tell_topics(self) -> None:
        self._coordinators.set_topics(tuple(self.topics[name] for name in sorted(self.topics)))

    def _change_topics(self) -> None:
        names = sorted(self.topics)
        name = names[self._random.below(len(names))]
        topic = self.topics[name]
        if name == "cc" and self._random.chance(0.4):
            self._make_topic(name, self._random.between(1, 3))
        elif topic.partition_count < PARTITIONS_MAX:
            more = topic.partition_count + self._random.between(1, 2)
            self.topics[name] = msgspec.structs.replace(topic, partition_count=more)
        self._watch.trace.note("metadata", "topics", f"{name}")
        self._tell_topics()

    # -- members -------------------------------------------------------------------------------

    def join(self, group: str = "", instance_id: str | None = None) -> None:
        """A new life."""
        self._lives += 1
        if instance_id is None:
            instance_id = f"i{self._lives}" if self._random.chance(0.3) else ""
        group = group or f"g{self._random.below(self._plan.groups)}"
        member = PlainMember(
            group,
            f"m{self._lives:03}",
            draw_subscription(self._random),
            instance_id=instance_id,
            session_timeout_ms=self._plan.session_timeout_ms,
            rebalance_timeout_ms=self._plan.rebalance_timeout_ms,
        )
        life = MemberAtWork(
            member,
            agenda=self._agenda,
            random=self._random,
            plan=self._plan,
            wires=self._wires,
            coordinators=self._coordinators,
            watch=self._watch,
            on_begin=self._stop_in_time,
        )
        self.members.append(life)
        self._watch.trace.note(life.name, "begin", group)
        life.start()

    def _stop_in_time(self, beginner: MemberAtWork) -> None:
        for life in self.members:
            if life is not beginner:
                life.stop_in_time()

    def _stir(self) -> None:
        if self.is_calm:
            return
        self._agenda.after(self._random.between(*STIR_MS) * MS, self._stir)
        what = self._random.below(12)
        if len(self.members) < self._plan.members_max and what < 4:
            self.join()
        elif what in (4, 5) and self.members:
            self._end(self._any(), is_for_a_while=False)
        elif what == 6 and self.members:
            self._end(self._any(), is_for_a_while=True)
        elif what == 7 and self.members:
            life = self._any()
            life.member.subscribe(draw_subscription(self._random))
        elif what == 8:
            self._change_topics()
        elif what == 9 and self.members and self._random.chance(0.3):
            self._evict(self._any())
        elif what == 10:
            self._ask(ListGroups() if self._random.chance(0.5) else DescribeGroup(group="g0"))

    def _any(self) -> MemberAtWork:
        return self.members[self._random.below(len(self.members))]

    def _end(self, life: MemberAtWork, *, is_for_a_while: bool) -> None:
        is_static = bool(life.member.instance_id)
        self.members.remove(life)
        self._watch.trace.note(life.name, "away" if is_for_a_while and is_static else "leave")
        life.leave(is_for_a_while=is_for_a_while and is_static)
        if is_for_a_while and is_static:
            self._come_back(life)

    def _come_back(self, life: MemberAtWork) -> None:
        delay_ns = self._random.between(*COME_BACK_MS) * MS
        self._agenda.after(delay_ns, self._rejoin, life.member.group, life.member.instance_id)

    def _rejoin(self, group: str, instance_id: str) -> None:
        if not self.is_calm or not self.members:
            self.join(group, instance_id)

    def _evict(self, life: MemberAtWork) -> None:
        self._watch.trace.note(life.name, "evict")
        self._watch.excuse(life.name)
        request = RemoveMembers(group=life.member.group, member_ids=(life.name,))
        self._ask(request)

    def _ask(self, request: AnyRequest) -> None:
        leader = self._coordinators.leader
        if leader is None:
            return
        numbered = msgspec.structs.replace(request, request_id=self._coordinators.next_request_id())
        self._wires.call("operator", leader, numbered, _pass_over)

    # -- what befalls them ---------------------------------------------------------------------

    def crash_one(self) -> None:
        """A member dies; somebody starts it again, under another member id."""
        if self.members and not self.is_calm:
            life = self._any()
            self.members.remove(life)
            self._faults.took_effect(FaultKind.PROCESS_CRASH, life.name)
            life.die()
            self._come_back(life)

    def pause_one(self) -> None:
        """A member stands still for a while."""
        if self.members:
            life = self._any()
            if not life.is_paused:
                life.is_paused = True
                self._faults.took_effect(FaultKind.PAUSE, life.name)
                self._agenda.after(self._random.between(*PAUSE_MS) * MS, life.resume)

    def calm_down(self) -> None:
        """Nobody comes or goes from here on; at least one is there."""
        self.is_calm = True
        for life in self.members:
            life.resume()
        groups = {life.member.group: None for life in self.members}
        for number in range(self._plan.groups):
            if f"g{number}" not in groups:
                self.join(f"g{number}", "")


def _pass_over(_answer: Answer | None) -> None:
    """An operator looks at it and goes on."""

"""Who is in the groups: members come, leave, die, stand still and come back.

Owns all lives of members. What it does in ordinary times any operator or user could do; faults are
those that the run has.
"""

from typing import Final

from tidelog.broker.groups.state.messages import (
    Answer,
    AnyRequest,
    DescribeGroup,
    ListGroups,
    RemoveMembers,
)
from tidelog.chaos.checkers.groups import GroupsWatch
from tidelog.chaos.sim.base.faults import FaultKind, Faults
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.groups.members import MemberAtWork
from tidelog.chaos.sim.groups.plan import Plan, draw_subscription
from tidelog.chaos.sim.groups.times import Times
from tidelog.chaos.sim.groups.topics import Topics
from tidelog.chaos.sim.groups.wires import Calls
from tidelog.chaos.sim.quorum.agenda import MS
from tidelog.chaos.workloads.plain_member import PlainMember

STIR_MS: Final = (60, 350)
PAUSE_MS: Final = (100, 2_500)
COME_BACK_MS: Final = (10, 600)


class Crowd:
    """Members and topics of one run."""

    def __init__(
        self,
        agenda: Times,
        random: SeededRandom,
        faults: Faults,
        plan: Plan,
        topics: Topics,
        wires: Calls,
        watch: GroupsWatch,
    ) -> None:
        self._agenda: Final = agenda
        self._random: Final = random
        self._faults: Final = faults
        self._plan: Final = plan
        self._topics: Final = topics
        self._wires: Final = wires
        self._watch: Final = watch
        self.members: list[MemberAtWork] = []
        self.is_calm = False
        """After the heal: nobody comes or goes any more."""
        self._lives = 0

    def start(self) -> None:
        """The first members, and what changes from then on."""
        for _ in range(self._random.between(1, self._plan.members_max)):
            self.join()
        self._stir()

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
            self._topics.change()
        elif what == 9 and self.members and self._random.chance(0.3):
            self._evict(self._any())
        elif what == 10:
            is_list = self._random.chance(0.5)
            self._ask(ListGroups() if is_list else DescribeGroup(group="g0"), "g0")

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
        if not self.is_calm:
            self.join(group, instance_id)

    def _evict(self, life: MemberAtWork) -> None:
        self._watch.trace.note(life.name, "evict")
        self._watch.excuse(life.name)
        request = RemoveMembers(group=life.member.group, member_ids=(life.name,))
        self._ask(request, life.member.group)

    def _ask(self, request: AnyRequest, group: str) -> None:
        self._wires.call("operator", group, request, _pass_over)

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

    def end_all(self) -> None:
        """Nobody asks or hears anything any more."""
        for life in self.members:
            life.die()
        self.members.clear()

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

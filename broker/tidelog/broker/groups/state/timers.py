"""Who is due when. Pure.

Owns a heap with one living entry for each member and group that waits for something. A heartbeat
moves a deadline back without touching the heap: when the old time comes, the member is looked at,
is not due, and is entered anew.
"""

import heapq
from typing import Final

from tidelog.broker.groups.state.group import NEVER_MS, Group, Member


class Timers:
    """Deadlines of members and of computations."""

    def __init__(self) -> None:
        self._heap: Final[list[tuple[int, str, str]]] = []

    def watch_member(self, group: Group, member: Member) -> None:
        """After one of its deadlines changed."""
        due_ms = min(member.session_due_ms, member.revoke_due_ms)
        if due_ms < member.timer_ms:
            member.timer_ms = due_ms
            heapq.heappush(self._heap, (due_ms, group.name, member.member_id))

    def watch_group(self, group: Group) -> None:
        """After its computation was put off."""
        heapq.heappush(self._heap, (group.assign_due_ms, group.name, ""))

    def next_ms(self) -> int:
        """When to look; perhaps nothing is due then."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def take_due(self, now_ms: int) -> dict[str, list[tuple[str, int]]]:
        """Group names with the member ids to look at, and since when; "": the group itself."""
        due: dict[str, list[tuple[str, int]]] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, group, member_id = heapq.heappop(self._heap)
            due.setdefault(group, []).append((member_id, due_ms))
        return due

"""Which cells there are: each call, fresh or at work, each fault, each role, each of its moments.

Owns the order in which seeds play them. A seed plays one row, which is all of that but the moment,
at a few moments: later rounds of the same row take those in between, so that every moment of
every row is played in the end, whatever the row's number of messages.
"""

from math import gcd
from typing import Final

import msgspec

from tidelog.chaos.sim.clients.admin_scenes import ADMINISTERING
from tidelog.chaos.sim.clients.reading_scenes import MEMBERS, READING
from tidelog.chaos.sim.clients.scene import Scene
from tidelog.chaos.sim.clients.strikes import Fault, Role
from tidelog.chaos.sim.clients.transaction_scenes import (
    ADMINISTERING_TRANSACTIONS,
    IN_TRANSACTIONS,
)
from tidelog.chaos.sim.clients.writing_scenes import WRITING

MOMENTS_A_SEED: Final = 4
_CASTS: Final = (
    (READING, (Role.LEADER, Role.BOOTSTRAP)),
    (MEMBERS, (Role.LEADER, Role.COORDINATOR)),
    (WRITING, (Role.LEADER, Role.CONTROLLER)),
    (ADMINISTERING, (Role.CONTROLLER, Role.COORDINATOR, Role.BOOTSTRAP)),
    (IN_TRANSACTIONS, (Role.LEADER, Role.TRANSACTION_COORDINATOR)),
    (ADMINISTERING_TRANSACTIONS, (Role.TRANSACTION_COORDINATOR, Role.BOOTSTRAP)),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Cells that differ in their moment only."""

    scene: Scene
    is_warm: bool
    fault: Fault
    role: Role

    @property
    def name(self) -> str:
        """For summaries."""
        phase = "warm" if self.is_warm else "fresh"
        return f"{self.scene.name} {phase} {self.fault.value} {self.role.value}"


def all_rows() -> tuple[Row, ...]:
    """In the order of their definition."""
    return tuple(
        Row(scene=scene, is_warm=is_warm, fault=fault, role=role)
        for scenes, roles in _CASTS
        for scene in scenes
        for is_warm in (False, True)
        if is_warm or not scene.only_warm
        for fault in Fault
        for role in roles
    )


ROWS: Final = all_rows()


def row_of(seed: int) -> tuple[Row, int]:
    """What the seed plays, and the how manieth time that row is played.

    Neighbouring seeds play rows that lie far apart: a few of them see something of everything.
    """
    stride = int(len(ROWS) * 0.382)
    while gcd(stride, len(ROWS)) != 1:
        stride += 1
    return ROWS[seed * stride % len(ROWS)], seed // len(ROWS)


def moments_of(messages: int, turn: int) -> tuple[int, ...]:
    """At which messages of the call it is struck; 0: just before the call."""
    count = messages + 1
    step = -(-count // MOMENTS_A_SEED)
    return tuple(range(turn % step, count, step))

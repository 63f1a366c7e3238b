"""What the troubles of both modes have in common: how long they last, how they cut a network.

Whoever cuts and pauses is `troubles` or `quorum_nodes.troubles`. It must never act by itself.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.quorum.agenda import MS

_T = TypeVar("_T")

PAUSE_NS: Final = (100 * MS, 4_000 * MS)
CUT_NS: Final = (200 * MS, 5_000 * MS)
CLOCK_RATES: Final = (0.5, 0.8, 1.25, 2.0)
RESTART_PROBABILITY: Final = 0.12
"""Of what is dead, each time that the supervisor looks."""
WATCH_NS: Final = 100 * MS
WRITES_END_NS: Final = 1_600 * MS
"""After the heal, with cores alone, where a write fails when it ends: the longest that one which
began before may still take."""
LATE_ENDS_NS: Final = 6_000 * MS
"""After the heal, with whole nodes, where what is on its way arrives: such as a late hand-over."""


def draw_partition(
    random: SeededRandom, nodes: Sequence[_T], victim: _T
) -> Iterator[tuple[_T, _T]]:
    """One node alone, two halves, halves with a bridge, or a ring: each direction to be cut."""
    shape = random.below(4)
    sides = [random.below(2) for _ in nodes]
    if shape == 0:
        sides = [int(node == victim) for node in nodes]
    for place_a, a in enumerate(nodes):
        for place_b, b in enumerate(nodes):
            is_cut = sides[place_a] != sides[place_b]
            if shape == 2:
                is_cut = is_cut and victim not in (a, b)
            elif shape == 3:
                is_cut = (place_a - place_b) % len(nodes) not in (0, 1, len(nodes) - 1)
            if is_cut:
                yield a, b

"""Which faults a run may suffer, how likely each is, and which of them were really felt.

Every fault kind is a named switch. A run draws, from its seed, a subset of the kinds that its suite
allows; about a quarter of the runs draw none. `fires` asks at the place where a fault can happen;
`took_effect` is called where the fault has changed what somebody could see, and only that counts.
"""

import enum
from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.base.trace import Trace

CALM_PROBABILITY: Final = 0.25
KIND_PROBABILITY: Final = 0.35


class FaultKind(enum.Enum):
    """What can go wrong. The value is the name in summaries and traces."""

    PROCESS_CRASH = "process_crash"
    MACHINE_CRASH = "machine_crash"
    PAUSE = "pause"
    WALL_JUMP = "wall_jump"
    WRONG_START_CLOCK = "wrong_start_clock"

    NETWORK_DELAY = "network_delay"
    BREAK = "break"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition_one_way"
    LATE_PROCESSING = "late_processing"
    CANCEL_HANDLER = "cancel_handler"
    CLOSED_EARLY = "closed_early"
    HELD_MESSAGE = "held_message"
    DATAGRAM_LOSS = "datagram_loss"
    DATAGRAM_DUPLICATE = "datagram_duplicate"
    DATAGRAM_REORDER = "datagram_reorder"

    LOST_WRITE = "lost_write"
    TORN_WRITE = "torn_write"
    HOLE = "hole"
    LOST_NAME = "lost_name"
    BIT_FLIP = "bit_flip"
    READ_ERROR = "read_error"
    WRITE_ERROR = "write_error"
    FLUSH_ERROR = "flush_error"
    NO_SPACE = "no_space"
    READ_ONLY = "read_only"
    SLOW_DISK = "slow_disk"
    WORKER_CRASH = "worker_crash"

    CLOCK_RATE = "clock_rate"
    WIPE = "wipe"
    ROLLBACK = "rollback"
    GONE_FILE = "gone_file"


PROBABILITIES: Final[dict[FaultKind, float]] = {
    FaultKind.NETWORK_DELAY: 0.03,
    FaultKind.BREAK: 0.01,
    FaultKind.LATE_PROCESSING: 0.6,
    FaultKind.CANCEL_HANDLER: 0.04,
    FaultKind.CLOSED_EARLY: 0.5,
    FaultKind.HELD_MESSAGE: 0.03,
    FaultKind.DATAGRAM_LOSS: 0.1,
    FaultKind.DATAGRAM_DUPLICATE: 0.1,
    FaultKind.DATAGRAM_REORDER: 0.1,
    FaultKind.LOST_WRITE: 0.4,
    FaultKind.TORN_WRITE: 0.4,
    FaultKind.HOLE: 0.3,
    FaultKind.LOST_NAME: 0.5,
    FaultKind.READ_ERROR: 0.006,
    FaultKind.WRITE_ERROR: 0.003,
    FaultKind.FLUSH_ERROR: 0.004,
    FaultKind.NO_SPACE: 0.02,
    FaultKind.SLOW_DISK: 0.05,
    FaultKind.WORKER_CRASH: 0.01,
}
"""How often a kind fires where it can. Kinds that are not here are started by the suite's plan."""


OF_A_CRASH: Final = frozenset(
    {FaultKind.LOST_WRITE, FaultKind.TORN_WRITE, FaultKind.HOLE, FaultKind.LOST_NAME}
)
"""Kinds that only a crash of the machine shows: where they are on, it is on."""

_BOOST: Final = 10
"""How much likelier kinds are in a period that is added for them."""


class FaultCount(msgspec.Struct):
    """How often a kind was switched on at its place, and how often somebody felt it."""

    fired: int = 0
    felt: int = 0


class Faults:
    """The switches of one run."""

    def __init__(
        self,
        random: SeededRandom,
        trace: Trace,
        *,
        enabled: Iterable[FaultKind] = (),
        probabilities: dict[FaultKind, float] | None = None,
    ) -> None:
        self._random = random
        self._trace = trace
        wanted = set(enabled)
        self.enabled: dict[FaultKind, None] = {kind: None for kind in FaultKind if kind in wanted}
        self._probabilities = PROBABILITIES | (probabilities or {})
        self._boost = 1
        self.active: dict[FaultKind, None] = dict(self.enabled)
        """Of the enabled kinds those of the present period; `heal` empties it."""
        self.counts: dict[FaultKind, FaultCount] = {kind: FaultCount() for kind in self.enabled}

    def is_active(self, kind: FaultKind) -> bool:
        """Whether the kind may happen now."""
        return kind in self.active

    def fires(self, kind: FaultKind) -> bool:
        """Whether the kind happens at this place, this time."""
        if kind not in self.active:
            return False
        if not self._random.chance(self._probabilities.get(kind, 1.0) * self._boost):
            return False
        self.counts[kind].fired += 1
        return True

    def took_effect(
        self, kind: FaultKind, subject: str, detail: str = "", *, name: str = ""
    ) -> None:
        """The fault changed what somebody could see."""
        count = self.counts.setdefault(kind, FaultCount())
        count.felt += 1
        self._trace.note(subject, f"fault:{kind.value}", detail, name=name)

    def felt(self, kind: FaultKind) -> int:
        """How often somebody felt the kind."""
        return self.counts[kind].felt if kind in self.counts else 0

    def begin_period(self, *, wants_unfelt: bool = False) -> None:
        """Draw which of the enabled kinds the next period may show; now and then none.

        A period that is added because the run does not count yet shows what nobody has felt.
        """
        self._boost = _BOOST if wants_unfelt else 1
        if wants_unfelt:
            self.active = dict.fromkeys(with_causes(self.unfelt()))
        elif self._random.chance(CALM_PROBABILITY):
            self.active = {}
        else:
            drawn = [kind for kind in self.enabled if self._random.chance(0.7)]
            self.active = dict.fromkeys(with_causes(drawn))

    def heal(self) -> None:
        """Nothing goes wrong from here on."""
        self.active = {}

    def unfelt(self) -> list[FaultKind]:
        """Enabled kinds without effect: such a run does not count."""
        return [kind for kind in self.enabled if self.counts[kind].felt == 0]


def draw_kinds(random: SeededRandom, allowed: Iterable[FaultKind]) -> list[FaultKind]:
    """The kinds of one run."""
    ordered = list(allowed)
    if random.chance(CALM_PROBABILITY):
        return []
    return with_causes([kind for kind in ordered if random.chance(KIND_PROBABILITY)])


def with_causes(kinds: list[FaultKind]) -> list[FaultKind]:
    """The kinds, and what has to happen for them to show."""
    if FaultKind.MACHINE_CRASH in kinds or not OF_A_CRASH.intersection(kinds):
        return kinds
    return [*kinds, FaultKind.MACHINE_CRASH]

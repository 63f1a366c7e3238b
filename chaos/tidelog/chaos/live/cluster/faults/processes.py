"""The faults of a live cluster: what is done to a broker, how it is undone, and what must be felt.

Owns one class a fault. Processes are struck by signals to their own process id, paths by toxics of
their own proxies; clients reach every broker all the time, unless its process is gone or paused.
"""

import time
from collections.abc import Sequence
from random import Random
from typing import Final

from tidelog.chaos.live.cluster.nodes import TidelogCluster
from tidelog.chaos.live.cluster.paths import Toxic, delay, reset, silence
from tidelog.chaos.live.cluster.rounds import Watched
from tidelog.chaos.live.cluster.seats import Seat
from tidelog.chaos.live.cluster.under_test import ClusterUnderTest, StoppableCluster

LATENCY_MS: Final = 150
JITTER_MS: Final = 50
LATENCY_SECONDS: Final = 8.0
RESET_SECONDS: Final = 5.0
RESET_AFTER_MS: Final = 20


class Trouble:
    """What most faults have in common."""

    hold_seconds = 1.0
    has_to_return = True

    def __init__(self, victims: Sequence[int]) -> None:
        self.victims = victims

    def felt(self, before: Sequence[Seat], during: Watched, victim: int) -> str | None:
        """Others lead, or the in-sync sets are without the victim."""
        del before, victim
        if not during.leaders_moved and not during.left_in_sync:
            return None
        return f"{during.leaders_moved} leaders moved, {during.left_in_sync} in-sync sets without"


class Kill(Trouble):
    """kill -9, and a start once everybody has written again."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster

    def strike(self, victim: int, draw: Random) -> str:
        """No marker, no flush, no goodbye."""
        del draw
        self._cluster.kill(victim)
        return "kill -9"

    def heal(self, victim: int) -> None:
        """Its process begins again."""
        self._cluster.start(victim)


class Pause(Trouble):
    """SIGSTOP, and SIGCONT once everybody has written again."""

    def __init__(self, cluster: StoppableCluster) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster

    def strike(self, victim: int, draw: Random) -> str:
        """Alive to the kernel, silent to everybody."""
        del draw
        self._cluster.pause(victim)
        return "SIGSTOP"

    def heal(self, victim: int) -> None:
        """It goes on with what it believes."""
        self._cluster.resume(victim)


class Restart(Trouble):
    """SIGTERM and a start, one broker behind the other."""

    hold_seconds = 0.5

    def __init__(self, cluster: TidelogCluster) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster

    def strike(self, victim: int, draw: Random) -> str:
        """An orderly stop: it hands over what it leads."""
        del draw
        began = time.monotonic()
        code = self._cluster.nodes[victim].stop()
        return f"SIGTERM, ended with {code} in {(time.monotonic() - began) * 1_000:.0f} ms"

    def heal(self, victim: int) -> None:
        """The next version of it, as it were."""
        self._cluster.start(victim)


class Network(Trouble):
    """Toxics on the paths of a broker, taken away at the heal."""

    def __init__(self, cluster: TidelogCluster) -> None:
        super().__init__(cluster.numbers)
        self._cluster = cluster

    def strike(self, victim: int, draw: Random) -> str:
        """Lay them on."""
        words, toxics = self.toxics(victim, draw)
        self._cluster.paths.apply(toxics)
        return words

    def heal(self, victim: int) -> None:
        """The paths are whole."""
        del victim
        self._cluster.paths.clear()

    def toxics(self, victim: int, draw: Random) -> tuple[str, list[Toxic]]:
        """Which, and what is said of them."""
        raise NotImplementedError

    def others(self, victim: int) -> list[int]:
        """Its peers."""
        return [number for number in self._cluster.numbers if number != victim]


class OneWay(Network):
    """A broker that is not heard by its peers, or does not hear them; clients reach it."""

    def toxics(self, victim: int, draw: Random) -> tuple[str, list[Toxic]]:
        """One of the two directions."""
        others = self.others(victim)
        if draw.random() < 0.5:
            return "it is not heard", [each for o in others for each in silence(victim, o)]
        return "it hears nothing", [each for o in others for each in silence(o, victim)]


class Full(Network):
    """A broker and its peers hear nothing of each other; clients reach all."""

    def toxics(self, victim: int, draw: Random) -> tuple[str, list[Toxic]]:
        """Both directions."""
        del draw
        both = [(victim, other) for other in self.others(victim)]
        pairs = both + [(listener, talker) for talker, listener in both]
        return "cut off from its peers", [each for pair in pairs for each in silence(*pair)]


class Latency(Network):
    """Every byte between a broker and its peers comes late."""

    hold_seconds = LATENCY_SECONDS

    def toxics(self, victim: int, draw: Random) -> tuple[str, list[Toxic]]:
        """On all its paths, both ways."""
        del draw
        toxics = [
            each
            for path in self._cluster.paths.of(victim)
            for each in delay(path, LATENCY_MS, JITTER_MS)
        ]
        return f"{LATENCY_MS} ± {JITTER_MS} ms each way", toxics

    def felt(self, before: Sequence[Seat], during: Watched, victim: int) -> str | None:
        """Acknowledgements take longer than one way there."""
        del before, victim
        if during.slowest_ms < during.slowest_before_ms + LATENCY_MS:
            return None
        return (
            f"an acknowledged record of each partition was at most {during.slowest_ms:.0f} ms old, "
            f"{during.slowest_before_ms:.0f} ms before"
        )


class Reset(Network):
    """Every connection between a broker and its peers on which anything is sent is reset."""

    hold_seconds = RESET_SECONDS

    def toxics(self, victim: int, draw: Random) -> tuple[str, list[Toxic]]:
        """On all its paths."""
        del draw
        paths = self._cluster.paths.of(victim)
        return "connections reset", [each for path in paths for each in reset(path, RESET_AFTER_MS)]

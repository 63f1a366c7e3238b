"""Rounds of a live cluster under a fault: struck, felt, healed, whole again; then everything read.

Owns the clock of a run and its validity gate. A run counts only if each healthy phase acknowledged
something and each fault moved what an observer can see; else it is INVALID, never green.
"""

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol

import msgspec

from tidelog.chaos.live.cluster.load import ClusterLoad
from tidelog.chaos.live.cluster.seats import Seat
from tidelog.chaos.live.cluster.under_test import ClusterUnderTest
from tidelog.chaos.live.processes.server import wait_until
from tidelog.wire.errors import ErrorCode, TidelogError

WARM_SECONDS_MAX: Final = 120.0
HEALTHY_SECONDS: Final = 3.0
RETURN_SECONDS_MAX: Final = 30.0
WHOLE_SECONDS_MAX: Final = 90.0
SAMPLE_SECONDS: Final = 0.5
STRUCK_SAMPLE_SECONDS: Final = 0.05
"""While a fault lasts: when leaders moved is known to this."""
NS_PER_MS: Final = 1_000_000


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run goes on: so many rounds, or as many as begin within the time."""

    rounds: int
    seconds: float | None = None
    healthy_seconds: float = HEALTHY_SECONDS
    """Without fault before each strike, and at the end."""

    def allows(self, done: int, began: float) -> bool:
        """Whether another round begins."""
        if self.seconds is None:
            return done < self.rounds
        return done == 0 or time.monotonic() - began < self.seconds


class Fault(Protocol):
    """One kind of trouble; holds what it has to undo."""

    hold_seconds: float
    """At least so long between strike and heal."""
    victims: Sequence[int]
    """Who may be struck."""
    has_to_return: bool
    """Whether everything has to be acknowledged again before the heal."""

    def strike(self, victim: int, draw: Random) -> str:
        """Do it; a few words on what was done."""
        ...

    def heal(self, victim: int) -> None:
        """Undo it."""
        ...

    def felt(self, before: Sequence[Seat], during: "Watched", victim: int) -> str | None:
        """What moved; None: nothing."""
        ...


class Watched(msgspec.Struct, kw_only=True):
    """What an observer saw from the strike to the heal."""

    leaders_moved: int = 0
    """Partitions that the victim had led and another leads."""
    left_in_sync: int = 0
    """Partitions whose in-sync set lacked the victim."""
    slowest_ms: float = 0.0
    """The longest time in which some partition had acknowledged nothing newer, to some producer."""
    slowest_before_ms: float = 0.0
    """The same in the healthy phase before."""
    controller_ns: int | None = None
    """When another broker was seen to decide; None: the victim did not, or still does."""
    moved_ns: int | None = None
    """When nothing was led by the victim any more, as others know it."""


class RoundDone(msgspec.Struct, frozen=True, kw_only=True):
    """One round."""

    victim: int
    words: str
    was_controller: bool
    controller_ns: int | None
    moved_ns: int | None
    """See `Watched`."""
    led: tuple[int, ...]
    """Partitions that the victim led when it was struck."""
    healthy_acknowledged: int
    began_ns: int
    struck_ns: int
    returned_ns: int | None
    """When each producer had an acknowledgement of each partition for what it sent afterwards;
    None: not before the heal."""
    healed_ns: int
    whole_ns: int
    """When every replica was in sync again."""
    felt: str | None
    is_stuck: bool
    """It had to return before the heal, and did not."""

    @property
    def counts(self) -> bool:
        """Whether it proves anything."""
        return self.healthy_acknowledged > 0 and self.felt is not None


def run_rounds(
    cluster: ClusterUnderTest, load: ClusterLoad, fault: Fault, budget: Budget, draw: Random
) -> list[RoundDone]:
    """All of them, each printed when it is over."""
    began = time.monotonic()
    done: list[RoundDone] = []
    print(
        "round  broker  led  controller ms  moved ms  again ms  in sync ms  what was done, and felt"
    )
    while budget.allows(len(done), began):
        cluster.balance()
        wait_whole(cluster, load)
        victim = _victim(fault.victims, done, draw)
        found = _round(cluster, load, fault, victim, draw, budget.healthy_seconds)
        done.append(found)
        print(_line(len(done), found), flush=True)
    _healthy(cluster, load, budget.healthy_seconds)
    return done


def wait_warm(cluster: ClusterUnderTest, load: ClusterLoad) -> None:
    """Until every producer was answered by every partition."""
    since_ns = time.monotonic_ns()
    wait(cluster, load, lambda: _returned(load, since_ns), WARM_SECONDS_MAX, tried="warm up")


def _victim(victims: Sequence[int], done: Sequence[RoundDone], draw: Random) -> int:
    """Every broker before any of them again."""
    often = dict.fromkeys(victims, 0)
    for each in done:
        often[each.victim] += 1
    rarest = min(often.values())
    return draw.choice([number for number, count in often.items() if count == rarest])


def _round(
    cluster: ClusterUnderTest,
    load: ClusterLoad,
    fault: Fault,
    victim: int,
    draw: Random,
    healthy_seconds: float,
) -> RoundDone:
    began_ns = time.monotonic_ns()
    calm = Watched()
    healthy = _healthy(cluster, load, healthy_seconds, calm)
    before = cluster.seats()
    was_controller = cluster.controller() == victim
    struck_ns = time.monotonic_ns()
    words = fault.strike(victim, draw)
    watched = Watched(slowest_before_ms=calm.slowest_ms)
    returned_ns = _wait_returned(
        cluster, load, fault, before, victim, struck_ns, watched, was_controller=was_controller
    )
    healed_ns = time.monotonic_ns()
    fault.heal(victim)
    wait_whole(cluster, load)
    return RoundDone(
        victim=victim,
        words=words,
        was_controller=was_controller,
        controller_ns=watched.controller_ns,
        moved_ns=watched.moved_ns,
        led=tuple(n for n, seat in enumerate(before) if seat.leader == victim),
        healthy_acknowledged=healthy,
        began_ns=began_ns,
        struck_ns=struck_ns,
        returned_ns=returned_ns,
        healed_ns=healed_ns,
        whole_ns=time.monotonic_ns(),
        felt=fault.felt(before, watched, victim),
        is_stuck=returned_ns is None and fault.has_to_return,
    )


def _healthy(
    cluster: ClusterUnderTest, load: ClusterLoad, seconds: float, calm: Watched | None = None
) -> int:
    """A while without fault, and until something was acknowledged: on a busy machine that may take
    longer than was asked for. How many records were acknowledged in it."""
    wait_whole(cluster, load)
    before, began_ns = load.acknowledged, time.monotonic_ns()

    def is_over() -> str | None:
        if calm is not None:
            calm.slowest_ms = max(calm.slowest_ms, _behind_ms(load))
        took_ns = time.monotonic_ns() - began_ns
        if took_ns < seconds * 1e9:
            return "it goes on"
        return None if load.acknowledged > before else "nothing was acknowledged"

    wait(cluster, load, is_over, WARM_SECONDS_MAX + seconds, tried="write while there is no fault")
    return load.acknowledged - before


def _behind_ms(load: ClusterLoad) -> float:
    return (time.monotonic_ns() - load.oldest_ns) / NS_PER_MS


def _wait_returned(
    cluster: ClusterUnderTest,
    load: ClusterLoad,
    fault: Fault,
    before: Sequence[Seat],
    victim: int,
    struck_ns: int,
    watched: Watched,
    *,
    was_controller: bool,
) -> int | None:
    """Until all is acknowledged again and the fault was felt; when the former was. Brokers that
    acknowledge what they must not are never silent: only what moves ends their fault."""
    returned_ns: list[int] = []

    def has_returned() -> str | None:
        watch(cluster, load, before, victim, watched)
        is_awaited = was_controller and watched.controller_ns is None
        if is_awaited and cluster.controller(without=victim) not in (victim, -1):
            watched.controller_ns = time.monotonic_ns()
        why_not = _returned(load, struck_ns)
        now_ns = time.monotonic_ns()
        if why_not is None and not returned_ns:
            returned_ns.append(now_ns)
        if now_ns - struck_ns < fault.hold_seconds * 1e9:
            return "the fault has not lasted yet"
        if now_ns >= latest_ns or not fault.has_to_return:
            return None
        if not returned_ns:
            return why_not
        return None if fault.felt(before, watched, victim) else "nobody has felt it yet"

    latest_ns = struck_ns + int((RETURN_SECONDS_MAX + fault.hold_seconds) * 1e9)
    limit = 2 * (RETURN_SECONDS_MAX + fault.hold_seconds)
    wait(
        cluster,
        load,
        has_returned,
        limit,
        tried=f"acknowledge again without broker {victim}",
        pause_seconds=STRUCK_SAMPLE_SECONDS,
    )
    return returned_ns[0] if returned_ns else None


def watch(
    cluster: ClusterUnderTest,
    load: ClusterLoad,
    before: Sequence[Seat],
    victim: int,
    watched: Watched,
) -> None:
    """Look once, from a broker that is not the victim; keep the most that was seen."""
    seats = cluster.seats(without=victim)
    moved = sum(
        was.leader == victim and seat.leader not in (victim, -1)
        for was, seat in zip(before, seats, strict=False)
    )
    missing = sum(victim in seat.replicas and victim not in seat.in_sync for seat in seats)
    watched.leaders_moved = max(watched.leaders_moved, moved)
    watched.left_in_sync = max(watched.left_in_sync, missing)
    led = sum(seat.leader == victim for seat in before)
    if led and moved == led and watched.moved_ns is None:
        watched.moved_ns = time.monotonic_ns()
    watched.slowest_ms = max(watched.slowest_ms, _behind_ms(load))


def _returned(load: ClusterLoad, since_ns: int) -> str | None:
    if load.oldest_ns >= since_ns:
        return None
    behind_ms = (since_ns - load.oldest_ns) // NS_PER_MS
    return f"some partition's last acknowledged record was sent {behind_ms} ms before that"


def wait_whole(cluster: ClusterUnderTest, load: ClusterLoad | None = None) -> None:
    """Until every replica of every partition is in sync."""

    def is_whole() -> str | None:
        seats = cluster.seats()
        lacking = [number for number, seat in enumerate(seats) if not seat.is_whole]
        if seats and not lacking:
            return None
        first = {number: seats[number] for number in lacking[:2]}
        return f"{len(lacking)} of {len(seats)} partitions lack a leader or a replica: {first}"

    wait(cluster, load, is_whole, WHOLE_SECONDS_MAX, tried="get every replica in sync")


def wait(
    cluster: ClusterUnderTest,
    load: ClusterLoad | None,
    condition: Callable[[], str | None],
    seconds_max: float,
    *,
    tried: str,
    pause_seconds: float = SAMPLE_SECONDS,
) -> None:
    """`wait_until`, as long as every producer runs; an error ends with what brokers said."""

    def checked() -> str | None:
        if load is not None:
            load.check_running()
        return condition()

    try:
        wait_until(checked, seconds_max, tried=tried, pause_seconds=pause_seconds)
    except TidelogError as error:
        if error.code is not ErrorCode.DEADLINE_EXCEEDED:
            raise
        happened = f"{error.happened}\n{cluster.log_tails()}"
        raise TidelogError(error.code, tried=error.tried, happened=happened) from None


def _line(number: int, done: RoundDone) -> str:
    controller = _ms(done.controller_ns, done.struck_ns) if done.was_controller else "-"
    moved, again = _ms(done.moved_ns, done.struck_ns), _ms(done.returned_ns, done.struck_ns)
    in_sync = _ms(done.whole_ns, done.healed_ns)
    return (
        f"{number:5}  {done.victim:6}  {len(done.led):3}  {controller:>13}  {moved:>8}  "
        f"{again:>8}  {in_sync:>10}  {done.words}; {done.felt or 'NOT FELT'}"
    )


def _ms(at_ns: int | None, since_ns: int) -> str:
    return "never" if at_ns is None else f"{(at_ns - since_ns) / NS_PER_MS:.0f}"

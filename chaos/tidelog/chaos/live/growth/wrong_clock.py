"""A live case: one broker starts with its wall clock a day ahead, and is put right again.

Owns its steps, and the way to a process with another clock: libfaketime, preloaded. The topic keeps
an hour, its records are minutes old. The broker is stopped in order and started a day ahead; it has
to say so, `cluster describe` has to show it, and nothing may go. Then it is started by a right
clock, the two others are killed, and one of them is started again: whatever the broker holds is
what everybody has now, and in the end everything is read. It must never count as a run where the
broker's clock was not seen to be off.
"""

import time
from pathlib import Path
from typing import Final

import msgspec

from tidelog.chaos.live.cluster.nodes import VOTERS
from tidelog.chaos.live.cluster.rounds import wait_whole
from tidelog.chaos.live.growth.growth import Stage, StandsStillError
from tidelog.wire.errors import TidelogError

VICTIM: Final = 2
AHEAD: Final = "+1d"
SETTINGS: Final = ("retention.ms=3600000", "segment.bytes=65536")
"""Small segments: only closed ones can be too old."""
LOOKS_SECONDS: Final = 25.0
"""Retention looks every 10 s: twice, and a while for the start."""
NOTICE_SECONDS_MAX: Final = 30.0
TOLD: Final = "clock_not_trusted"
TRIMMED: Final = " retention partition="
PLACES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


def find_library() -> Path | None:
    """Where libfaketime is; None: it is not installed."""
    found = (file for place in PLACES for file in sorted(Path("/").glob(place.lstrip("/"))))
    return next(found, None)


def clock_is_ahead(stage: Stage) -> None:
    """See the module."""
    library = find_library()
    assert library is not None, "the case is begun with the library at hand only"
    cluster = stage.cluster
    node = cluster.nodes[VICTIM]
    cluster.done("config", "set", "--topic", cluster.topic, *SETTINGS)
    stage.healthy("records are written")
    said = len(node.log_text())
    _restart(stage, "a broker starts a day ahead", faked_clock(library, AHEAD))
    with stage.phase("retention looks by that clock"):
        _wait_seen(stage)
        until = time.monotonic() + LOOKS_SECONDS
        stage.wait(
            lambda: None if time.monotonic() >= until else "it goes on",
            LOOKS_SECONDS + 10.0,
            tried="let retention look",
        )
    lines = node.log_text()[said:]
    stage.expect(TOLD in lines, f"broker {VICTIM} says nothing of its clock")
    print(f"  broker {VICTIM} has trimmed {lines.count(TRIMMED)} times", flush=True)
    stage.expect(TRIMMED not in lines, f"broker {VICTIM} has deleted records by its clock")
    _restart(stage, "it starts by a right clock", {})
    _leave_it_alone(stage)
    stage.healthy("after it")


def faked_clock(library: Path, offset: str) -> dict[str, str]:
    """What makes the wall clock of a process another one; its ticks stay as they are."""
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def _restart(stage: Stage, name: str, environment: dict[str, str]) -> None:
    cluster = stage.cluster
    node = cluster.nodes[VICTIM]
    with stage.phase(name):
        code = node.stop()
        stage.expect(code == 0, f"the broker ended with {code}")
        node.environment = environment
        cluster.quorum.start(VICTIM)
        cluster.wait_registered(VOTERS)
        wait_whole(cluster, stage.load)
        cluster.balance()


def _wait_seen(stage: Stage) -> None:
    """`cluster describe` shows the clock of the broker, and of no other, as off."""

    def is_seen() -> str | None:
        shown = msgspec.json.decode(stage.cluster.done("cluster", "describe", "--json"))
        states = {each["broker_id"]: each.get("clock_state") for each in shown["brokers"]}
        off = [broker_id for broker_id, state in states.items() if state == "off"]
        return None if off == [VICTIM] else f"clocks are shown as {states}"

    try:
        stage.cluster.wait(is_seen, NOTICE_SECONDS_MAX, tried="see the clock that is off")
    except TidelogError as error:
        stage.expect(False, str(error))


def _leave_it_alone(stage: Stage) -> None:
    """The others die; with one of them back it leads what it holds."""
    cluster = stage.cluster
    others = [number for number in cluster.nodes if number != VICTIM]
    with stage.phase("the others are killed, one is started"):
        for number in others:
            cluster.kill(number)
        try:
            cluster.quorum.start(others[-1])
            cluster.wait_registered(2)
            stage.wait_written(time.monotonic_ns(), tried="write with the two that are left")
            led = sum(seat.leader == VICTIM for seat in cluster.seats())
            print(f"  broker {VICTIM} leads {led} of {cluster.partition_count}", flush=True)
            cluster.quorum.start(*others[:-1])
            cluster.wait_registered(VOTERS)
            wait_whole(cluster, stage.load)
        except TidelogError as error:
            raise StandsStillError(str(error)) from None

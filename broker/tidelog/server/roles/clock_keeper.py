"""The node's time across its restarts: what it stored last, and lines for what its clock does.

Owns the file `clock.json` of the data directory: a moment of which the node knew the time, by its
own clock or by the cluster's, kept every minute and at the orderly stop. It must never store a
time that is not believed: the next start would take a wrong clock for right by it. A file that is
missing or damaged is none: the first start of a lone node believes its clock.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidelog.broker.shared.clock_trust import ClockTrust, StoredTime
from tidelog.broker.shared.node_time import NodeTime
from tidelog.metadata.broker_reports import ClockState
from tidelog.metadata.image.image import Image
from tidelog.metadata.settings import catalogue
from tidelog.ports import Clock, Disk
from tidelog.server.events import log as log_events
from tidelog.server.storage.format import read_file, write_file
from tidelog.wire.batch import checksum
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerId

FILE_NAME: Final = "clock.json"
LOOK_MS: Final = 1_000
STORE_MS: Final = 60_000
"""A restart of the machine that is over within `clock.skew.max.ms` after this needs nobody."""
_BELIEVED: Final = (ClockState.RIGHT, ClockState.ALONE)
_HINTS: Final = {
    ClockState.OFF: "Put this machine's clock right; `tidelog cluster describe` shows all clocks.",
    ClockState.HELD: "Put this machine's clock right, or, if it is right, type "
    "`tidelog cluster confirm-clock --execute`.",
    ClockState.NO_MAJORITY: "Start the brokers that are down, put clocks right that differ, or "
    "remove brokers that are gone for good: `tidelog cluster describe` shows them.",
    ClockState.UNKNOWN: "No controller has judged this node's clock lately.",
}


class _Stored(StoredTime, frozen=True, kw_only=True):
    """As it lies there: a flipped bit must not become another time."""

    checksum: int


async def read_stored(disk: Disk) -> StoredTime | None:
    """What was kept; None: nothing that could be relied upon."""
    if FILE_NAME not in await disk.list():
        return None
    try:
        found = msgspec.json.decode(await read_file(disk, FILE_NAME), type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    kept = StoredTime(wall_ms=found.wall_ms, uptime_ms=found.uptime_ms, boot_id=found.boot_id)
    return kept if checksum(msgspec.json.encode(kept)) == found.checksum else None


def encode_stored(kept: StoredTime) -> bytes:
    """The content of the file."""
    total = checksum(msgspec.json.encode(kept))
    return msgspec.json.encode(_Stored(**msgspec.structs.asdict(kept), checksum=total))


class ClockKeeper:
    """`open` before anything asks for the time; `run()` is its task; `stop` at the orderly end."""

    def __init__(self, disk: Disk, clock: Clock, time: NodeTime) -> None:
        self._disk = disk
        self._clock = clock
        self.time = time
        self._told: ClockState | None = None
        """What the log was told last; None: nothing yet."""

    @classmethod
    async def open(
        cls,
        disk: Disk,
        clock: Clock,
        *,
        boot_id: str,
        is_own_judge: bool,
        broker_id: BrokerId,
        image: Callable[[], Image],
    ) -> "ClockKeeper":
        """With what the last life of the node has stored."""
        trust = ClockTrust(
            stored=await read_stored(disk), boot_id=boot_id, is_own_judge=is_own_judge
        )

        def confirmed_ms() -> int:
            own = image().broker_configurations.get(broker_id, {})
            return int(own.get(catalogue.CLOCK_CONFIRMED_MS, "0"))

        return cls(disk, clock, NodeTime(clock, trust, confirmed_ms=confirmed_ms))

    async def run(self) -> None:
        """Until cancelled."""
        looks = 0
        while True:
            self._look()
            if looks % (STORE_MS // LOOK_MS) == 0:
                await self.store()
            # Counted from the first time that is worth keeping: a short life keeps one as well.
            looks += self.time.to_store() is not None
            await self._clock.sleep(LOOK_MS)

    async def store(self) -> None:
        """Keep the present moment, if its time is known."""
        kept = self.time.to_store()
        if kept is None:
            return
        try:
            await write_file(self._disk, FILE_NAME, encode_stored(kept))
        except TidelogError as error:
            # The time before stays: the next start of a lone node may ask for a confirmation.
            log_events.warning("clock_not_stored", error=error)

    def _look(self) -> None:
        """Say once when the clock is one to delete by no more, and when it is again."""
        state, told = self.time.state, self._told
        if state is told or (told is None and state is ClockState.UNKNOWN):
            return
        self._told = state
        if state not in _BELIEVED:
            log_events.warning(
                "clock_not_trusted",
                state=state.name.lower(),
                skew_ms=self.time.skew_ms,
                effect="nothing is deleted by time here",
                hint=_HINTS[state],
            )
        elif told is not None and told not in _BELIEVED:
            log_events.info("clock_trusted", state=state.name.lower(), skew_ms=self.time.skew_ms)

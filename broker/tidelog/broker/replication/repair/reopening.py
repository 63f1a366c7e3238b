"""Logs that stopped because they could not be read: opened again, and again after a longer while.

Owns the waits. It must never touch a file: an opening does what a start does, and a log of which
the bytes are wrong stays stopped (`repair`). A directory that has failed stays so, since a failed
flush is never tried again. Beside it `repair` tells the controller, so that others lead meanwhile.

    has stopped: STORAGE_FAILED ──▶ wait ──▶ opened ──▶ served by its role
                      ▲               └─ cannot be read ─┐
                      └────── twice as long, bounded ◀───┘

A follower that holds committed records which its leader lacks has stopped on purpose: opened again
it would part from that leader as before. It is let be until another leader epoch begins.
"""

from typing import Final

import msgspec

from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.shared.events import EventLog
from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode
from tidelog.wire.ids import PartitionKey

LOOK_MS: Final = 500
WAIT_MS_MIN: Final = 1_000
WAIT_MS_MAX: Final = 30_000
FORGOTTEN_MS: Final = 120_000
"""So long after its last opening a log that stops is one that stops for the first time."""
_NS_PER_MS: Final = 1_000_000


class Waiting(msgspec.Struct, frozen=True):
    """When a log is opened again, and how long it waited for that."""

    at_ms: int
    wait_ms: int


def next_wait(known: Waiting | None, now_ms: int) -> Waiting:
    """For a log that was found stopped now, after its last wait if there was one."""
    if known is None or now_ms - known.at_ms > FORGOTTEN_MS:
        return Waiting(now_ms + WAIT_MS_MIN, WAIT_MS_MIN)
    wait_ms = min(WAIT_MS_MAX, 2 * known.wait_ms)
    return Waiting(now_ms + wait_ms, wait_ms)


class Reopening:
    """One a broker; `run` for its life."""

    def __init__(self, replicas: Replicas, clock: Clock, events: EventLog) -> None:
        self._replicas = replicas
        self._clock = clock
        self._events = events
        self._waiting: dict[PartitionKey, Waiting] = {}
        self._stopped: dict[PartitionKey, Replica] = {}
        """For which the wait was decided upon."""
        self.opened_count = 0
        """Logs that were served again since the start."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._replicas.wait_stopped()
            await self._clock.sleep(LOOK_MS)
            now_ms = self._clock.monotonic_ns() // _NS_PER_MS
            self._forget(now_ms)
            for replica in [each for each in self._replicas.stopped() if may_be_opened(each)]:
                if self._is_due(replica, now_ms):
                    await self._open(replica)

    def _is_due(self, replica: Replica, now_ms: int) -> bool:
        key = replica.log.key
        known = self._stopped.get(key)
        if known is None or known.log is not replica.log:
            self._stopped[key] = replica
            self._waiting[key] = next_wait(self._waiting.get(key), now_ms)
        return now_ms >= self._waiting[key].at_ms

    def _forget(self, now_ms: int) -> None:
        for key, waiting in list(self._waiting.items()):
            if now_ms - waiting.at_ms > FORGOTTEN_MS:
                del self._waiting[key]
                self._stopped.pop(key, None)

    async def _open(self, replica: Replica) -> None:
        key = replica.log.key
        present = self._replicas.get(key.topic_id, key.partition)
        if present is None or present.log is not replica.log:
            return
        # Found stopped again it waits longer, whatever has become of it.
        del self._stopped[key]
        await self._replicas.open_again(key)
        opened = self._replicas.get(key.topic_id, key.partition)
        if opened is None or opened.log is replica.log:
            return
        if opened.log.failure is not None:
            self._events.warning("replica_not_opened", partition=key, error=opened.log.failure)
            return
        self.opened_count += 1
        self._events.warning(
            "replica_opened_again",
            partition=key,
            directory=opened.directory.name,
            log_end_offset=opened.log.log_end_offset,
        )


def may_be_opened(replica: Replica) -> bool:
    """Whether it has stopped for want of a file that could not be read, and may come back."""
    failure = replica.log.failure
    return (
        failure is not None
        and failure.code is ErrorCode.STORAGE_FAILED
        and not _is_kept_apart(replica)
        and replica.directory.failure is None
        and replica.directory.is_open
    )


def _is_kept_apart(replica: Replica) -> bool:
    """From the leader that it has still. Another one may have all that it has; judged again it
    stops again if not, each time after a longer wait."""
    at = replica.log.kept_apart_at
    return at is not None and not replica.is_led and replica.leader_epoch <= at

"""Ends transactions in the partitions that this broker leads: on the word of coordinators.

Owns what a coordinator hears of its marker. It must never say that a marker is there before it is
committed, nor before whoever observes the partition shows what it ended (`MarkerObserver`). A
marker goes the way of a batch with acks=all; the directory's core judges it in its turn.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from tidelog.broker.directory.core.messages import Appended
from tidelog.broker.replicas.replicas import Replica, Replicas
from tidelog.broker.shared.meter import Meter, count
from tidelog.broker.shared.node_time import WallTime
from tidelog.broker.transactions.marking import MarkerObserver, PartitionMarker
from tidelog.broker.transactions.state.places import TRANSACTIONS
from tidelog.broker.transactions.state.states import (
    FENCING_EPOCH,
    TRANSACTION_VERSION,
    Decision,
)
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import TaskScope
from tidelog.wire.batch import read_header
from tidelog.wire.batch.marker import Marker, MarkerType, encode_marker
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import NO_LEADER_EPOCH
from tidelog.wire.refusals import invalid

MARKERS_IN_FLIGHT_MAX: Final = 20_000
"""Partitions of one broker that wait for their marker to be committed; the coordinator sends again
what is refused."""

NOT_HANGING: Final = -1
_TYPES: Final = {Decision.COMMIT: MarkerType.COMMIT, Decision.ABORT: MarkerType.ABORT}

Begun = asyncio.Future[Appended] | TidelogError


class MarkerHandler:
    """A `MarkerWriting`."""

    def __init__(
        self,
        replicas: Replicas,
        time: WallTime,
        metadata: ImageSource,
        meter: Meter,
        observers: Sequence[MarkerObserver] = (),
    ) -> None:
        self._replicas = replicas
        self._time = time
        self._metadata = metadata
        self._meter = meter
        self._observers = tuple(observers)
        self._in_flight = 0

    async def write(
        self, marker: PartitionMarker, *, timeout_ms: int, hangs_from: int = NOT_HANGING
    ) -> TidelogError | None:
        """As `MarkerWriting` says; `hangs_from`: only if the transaction that is open begins
        there."""
        (error,) = await self.write_all([marker], timeout_ms=timeout_ms, hangs_from=hangs_from)
        return error

    async def write_all(
        self,
        markers: Sequence[PartitionMarker],
        *,
        timeout_ms: int,
        hangs_from: int = NOT_HANGING,
    ) -> list[TidelogError | None]:
        """As `write`, for many: all of them are queued at once, and share the time."""
        begun = [self._begin(marker, hangs_from) for marker in markers]
        answers: dict[int, TidelogError | None] = {}
        self._in_flight += len(begun)

        async def finish(place: int) -> None:
            answers[place] = await self._finished(markers[place], begun[place])

        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000), TaskScope() as scope:
                    unobserved = []
                    for place, marker in enumerate(markers):
                        if self._is_observed(marker):
                            # None waits for what the observer of another one does.
                            scope.start(finish(place), name="show the end of a transaction")
                        else:
                            unobserved.append(place)
                    for place in unobserved:
                        await finish(place)
        finally:
            self._in_flight -= len(begun)
            _forget(begun)
        found = [
            answers[place] if place in answers else _late(marker, timeout_ms)
            for place, marker in enumerate(markers)
        ]
        for error in found:
            if error is None:
                self._meter.markers_written += 1
            else:
                count(self._meter.marker_refusals, error.code.name)
        return found

    def _begin(self, marker: PartitionMarker, hangs_from: int) -> Begun:
        try:
            replica = self._checked(marker)
            if self._in_flight >= MARKERS_IN_FLIGHT_MAX:
                raise TidelogError(
                    ErrorCode.RESOURCE_EXHAUSTED,
                    tried=_tried(marker),
                    happened=f"{self._in_flight} markers are on their way here, which is the limit",
                )
            wall_ms = self._time.wall_ms()
            batch = encode_marker(
                Marker(_TYPES[marker.decision], marker.coordinator_epoch),
                producer_id=marker.identity.producer_id,
                producer_epoch=marker.identity.producer_epoch,
                timestamp_ms=wall_ms,
            )
            return replica.directory.owner.submit(
                replica.log,
                batch,
                read_header(batch),
                is_flush_awaited=True,
                append_time_ms=wall_ms,
                hangs_from=hangs_from,
            )
        except TidelogError as error:
            return error

    def _checked(self, marker: PartitionMarker) -> Replica:
        tried = _tried(marker)
        TRANSACTIONS.check_on(self._metadata.image(), tried=tried)
        if marker.transaction_version != TRANSACTION_VERSION:
            raise TidelogError(
                ErrorCode.UNSUPPORTED_VERSION,
                tried=tried,
                happened=f"the marker is of version {marker.transaction_version}, this broker "
                f"writes version {TRANSACTION_VERSION}",
            )
        if marker.identity.producer_id < 0 or marker.coordinator_epoch < 0:
            raise invalid(tried, "the marker names no producer, or no coordinator's epoch")
        if not 0 < marker.identity.producer_epoch <= FENCING_EPOCH:
            raise invalid(
                tried,
                f"the marker's epoch is {marker.identity.producer_epoch}, an end has one from 1 to "
                f"{FENCING_EPOCH}",
            )
        key = marker.key
        return self._replicas.find(key.topic_id, key.partition, NO_LEADER_EPOCH, tried=tried)

    async def _finished(self, marker: PartitionMarker, begun: Begun) -> TidelogError | None:
        if isinstance(begun, TidelogError):
            return begun
        try:
            appended = await begun
            await self.tell(marker, appended.base_offset)
        except TidelogError as error:
            return error
        return None

    def _is_observed(self, marker: PartitionMarker) -> bool:
        return any(observer.observes(marker.key) for observer in self._observers)

    async def tell(self, marker: PartitionMarker, marker_offset: int) -> None:
        """Return once all who observe the partition show what the marker has ended."""
        for observer in self._observers:
            if observer.observes(marker.key):
                await observer.marker_committed(
                    marker.key, marker.identity, marker.decision, marker_offset
                )


def _tried(marker: PartitionMarker) -> str:
    return f"end the transaction of {marker.identity} in {marker.key}"


def _late(marker: PartitionMarker, timeout_ms: int) -> TidelogError:
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried=_tried(marker),
        happened=f"the marker is not committed after {timeout_ms} ms; it may be there",
        hint="Send the same marker again: one that is there is answered as success.",
    )


def _forget(begun: Sequence[Begun]) -> None:
    """Nobody waits any more: what the owner still answers is not looked at."""
    for each in begun:
        if isinstance(each, TidelogError):
            continue
        if not each.done():
            each.cancel()
        elif not each.cancelled():
            each.exception()  # an exception that nobody takes note of would be reported

"""When a damaged replica is begun anew: only once nobody counts on it, or can begin to."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from tidelog.broker.log.state.log import PartitionLog
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replication.repair.repair import Repair
from tidelog.metadata.broker_reports import DamagedReplica
from tidelog.metadata.image.image import PartitionImage
from tidelog.metadata_quorum.port import ImageSource
from tidelog.ports import Clock
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicId,
)

KEY = PartitionKey(TopicId(bytes(16)), PartitionId(0))
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ROT = TidelogError(ErrorCode.STORAGE_CORRUPT, tried="read", happened="the checksum is wrong")


class Directory:
    """In order."""

    name = "n2:data"
    is_open = True
    failure = None


class DamagedOne:
    """A replica of which the log has rotted."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.log = PartitionLog(KEY, LeaderEpoch(0))
        self.log.failure = ROT
        self.is_led = False


class Shown:
    """An image with one partition."""

    def __init__(self, partition: PartitionImage) -> None:
        self._partition = partition

    def partition(self, topic_id: TopicId, partition: int) -> PartitionImage:
        assert PartitionKey(topic_id, PartitionId(partition)) == KEY
        return self._partition


class Quiet:
    """An event log that nobody reads."""

    def info(self, event: str, **values: object) -> None:
        del event, values

    warning = error = info


class Scene:
    """Broker 2 holds one damaged replica; broker 1 leads."""

    def __init__(self, *in_sync: BrokerId) -> None:
        self.damaged = DamagedOne()
        self.partition = PartitionImage(
            partition=PartitionId(0),
            leader_id=ONE,
            leader_epoch=LeaderEpoch(3),
            partition_epoch=PartitionEpoch(7),
            replicas=(ONE, TWO, THREE),
            in_sync_replicas=in_sync,
        )
        self.irreplaceable: dict[PartitionKey, TidelogError] = {}
        self.reports = 0
        self.outcome: TidelogError | None = None
        self.is_away = False
        """No controller answers."""
        self.begun = 0
        self.now_ms = 0
        self._looks = 0
        whole = cast("Any", self)
        self._repair = Repair(
            cast("Replicas", whole),
            cast("ImageSource", whole),
            cast("Clock", whole),
            whole,
            Quiet(),
            broker_id=TWO,
        )

    def look(self, count: int = 1) -> int:
        """So many looks; how often it has been begun anew by then."""
        self._looks = count
        try:
            asyncio.run(self._repair.run())
        except TimeoutError:
            return self.begun
        raise AssertionError("it looks for the broker's life")

    def hear(self, *in_sync: BrokerId) -> None:
        """The image has a newer partition epoch."""
        self.partition = msgspec.structs.replace(
            self.partition,
            partition_epoch=PartitionEpoch(self.partition.partition_epoch + 1),
            in_sync_replicas=in_sync,
        )

    # -- clock, calls, metadata, replicas ----------------------------------------------------------

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    async def sleep(self, duration_ms: int) -> None:
        if not self._looks:
            raise TimeoutError
        self._looks -= 1
        self.now_ms += duration_ms

    async def report_damaged(
        self, damaged: Sequence[DamagedReplica]
    ) -> tuple[TidelogError | None, ...]:
        assert [each.leader_epoch for each in damaged] == [3]
        self.reports += 1
        if self.is_away:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="report", happened="nobody answers")
        return (self.outcome,)

    def image(self) -> Shown:
        return Shown(self.partition)

    def stopped(self) -> list[DamagedOne]:
        return [self.damaged]

    async def wait_stopped(self) -> None:
        """It has."""

    def get(self, topic_id: TopicId, partition: int) -> DamagedOne:
        assert PartitionKey(topic_id, PartitionId(partition)) == KEY
        return self.damaged

    def renew_role(self, key: PartitionKey) -> None:
        assert key == KEY

    async def begin_anew(self, key: PartitionKey) -> str:
        assert key == KEY
        self.begun += 1
        self.damaged = DamagedOne()
        return "aside"


def test_one_that_is_not_in_sync_is_begun_anew_behind_the_report_only() -> None:
    scene = Scene(ONE, THREE)
    assert scene.look(3) == 0, "its leader may be letting it in by what it held"
    assert scene.reports == 1, "once"
    scene.hear(ONE, THREE)
    assert scene.look() == 1


def test_one_that_was_let_in_meanwhile_is_reported_again_and_kept() -> None:
    scene = Scene(ONE, THREE)
    assert scene.look() == 0
    scene.hear(ONE, TWO, THREE)
    assert scene.look(2) == 0
    assert scene.reports == 3
    scene.hear(ONE, THREE)
    assert scene.look() == 1


def test_a_report_that_was_refused_is_none() -> None:
    scene = Scene(ONE, THREE)
    scene.outcome = TidelogError(ErrorCode.FENCED_LEADER_EPOCH, tried="report", happened="over")
    assert scene.look() == 0
    scene.hear(ONE, THREE)
    scene.outcome = None
    assert scene.look(2) == 0
    assert scene.reports == 1, "it waits"
    assert scene.look(10) == 0
    assert scene.reports == 2
    scene.hear(ONE, THREE)
    assert scene.look() == 1


def test_damage_of_what_was_begun_anew_is_reported_anew() -> None:
    scene = Scene(ONE, THREE)
    scene.look()
    scene.hear(ONE, THREE)
    assert scene.look() == 1
    assert scene.look(2) == 1
    assert scene.reports == 2
    scene.hear(ONE, THREE)
    assert scene.look() == 2


def test_a_report_of_the_log_before_says_nothing_of_this_one() -> None:
    scene = Scene(ONE, THREE)
    scene.look()
    scene.damaged = DamagedOne()
    scene.hear(ONE, THREE)
    scene.is_away = True
    assert scene.look(2) == 0
    scene.is_away = False
    assert scene.look() == 0
    scene.hear(ONE, THREE)
    assert scene.look() == 1

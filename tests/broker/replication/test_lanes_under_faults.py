"""Partitions that go from lane to lane while streams break, brokers die and leaders change.

A longer run: TIDELOG_LANE_SEEDS=300 python -m pytest -s -m slow tests/broker/replication
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from tests.broker.support.copy_brokers import BROKERS, TOPIC, CopyBroker, SharedMetadata
from tidelog.broker.replication.shared.messages import Lane
from tidelog.chaos.sim import World
from tidelog.chaos.sim.base.faults import FaultKind
from tidelog.chaos.sim.world.process import Process
from tidelog.wire.ids import BrokerId, PartitionId, PartitionKey

SEEDS = int(os.environ.get("TIDELOG_LANE_SEEDS", "10"))
PARTITIONS = 3
ROUNDS = 40
FAULTS = (
    FaultKind.BREAK,
    FaultKind.NETWORK_DELAY,
    FaultKind.LATE_PROCESSING,
    FaultKind.CANCEL_HANDLER,
    FaultKind.SLOW_DISK,
)


class Storm:
    """One world to its end."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.chance = random.Random(seed)
        self.seen = seen
        self.world = World(seed, enabled=FAULTS)
        self.brokers: dict[BrokerId, CopyBroker] = {}
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.writes: list[tuple[Process, asyncio.Task[None]]] = []
        self.count = 0

    async def run(self) -> None:
        self.metadata = SharedMetadata(PARTITIONS)
        self.brokers = {number: CopyBroker(self.world, self.metadata, number) for number in BROKERS}
        await self.until(lambda: all(each.is_serving for each in self.brokers.values()))
        for _ in range(ROUNDS):
            await self.step()
            await asyncio.sleep(self.chance.choice([0, 0.01, 0.1]))
            self.look()
        self.world.heal()
        for broker in self.brokers.values():
            if broker.process.is_dead:
                broker.restart()
        await self.until(lambda: all(each.is_serving for each in self.brokers.values()))
        await self.until(lambda: all(self.is_over(*each) for each in self.writes))
        for number in range(PARTITIONS):
            await self.comes_to_rest(number)

    async def step(self) -> None:
        number = self.chance.randrange(PARTITIONS)
        roll = self.chance.random()
        if roll < 0.6:
            for _ in range(self.chance.choice([1, 5, 30])):
                self.write(number)
        elif roll < 0.75:
            self.change_in_sync(number)
        elif roll < 0.85:
            self.change_leader(number)
        elif roll < 0.95:
            await self.kill_and_restart()

    def write(self, number: int) -> None:
        leader = self.brokers[self.metadata.partition(number).leader_id]
        if leader.is_serving:
            self.count += 1
            value = b"%d" % self.count + bytes(self.chance.choice([1, 200]))
            work = self.note(leader, number, value, is_awaited=self.chance.random() < 0.7)
            self.writes.append((leader.process, leader.process.start_task(work, "write")))

    def is_over(self, process: Process, write: "asyncio.Task[None]") -> bool:
        return process.is_dead or write.done()

    async def note(
        self, leader: CopyBroker, number: int, value: bytes, *, is_awaited: bool
    ) -> None:
        offset = await leader.write(number, value, is_awaited=is_awaited)
        if offset is not None and is_awaited:
            self.acknowledged[number, offset] = value

    def change_in_sync(self, number: int) -> None:
        """Out: whoever a coin says. In: who has what is committed, as the policy would see it."""
        partition = self.metadata.partition(number)
        leader = self.brokers[partition.leader_id]
        if not leader.is_serving:
            return
        watermark = leader.replica(number).log.high_watermark
        in_sync = [partition.leader_id]
        for other in BROKERS:
            if other == partition.leader_id:
                continue
            key = PartitionKey(TOPIC, PartitionId(number))
            at = leader.positions.get((key, other))
            told = 0 if at is None else at.log_end_offset
            is_member = other in partition.in_sync_replicas
            may_stay = is_member and self.chance.random() < 0.5
            may_come = not is_member and told >= watermark
            if may_stay or (may_come and self.is_level(leader, other, number)):
                in_sync.append(other)
        self.metadata.decide(number, in_sync=tuple(sorted(in_sync)))
        self.seen["in-sync changes"] += 1

    def leave_out(self, number: int, broker_id: BrokerId) -> None:
        """It is dead: the others go on without it."""
        partition = self.metadata.partition(number)
        left = tuple(each for each in partition.in_sync_replicas if each != broker_id)
        if broker_id != partition.leader_id and left and self.chance.random() < 0.7:
            self.metadata.decide(number, in_sync=left)

    def is_level(self, leader: CopyBroker, other: BrokerId, number: int) -> bool:
        """Whether nothing is on its way: with no expansion to wait for, nothing may be."""
        follower = self.brokers[other]
        if not follower.is_serving:
            return False
        ours, theirs = leader.replica(number).log, follower.replica(number).log
        return (
            theirs.leader_epoch == ours.leader_epoch
            and theirs.flushed_offset >= ours.log_end_offset
        )

    def change_leader(self, number: int) -> None:
        partition = self.metadata.partition(number)
        able = [each for each in partition.in_sync_replicas if self.brokers[each].is_serving]
        if able:
            leader, in_sync = self.chance.choice(able), partition.in_sync_replicas
            if self.chance.random() < 0.5:
                # The old leader is thought to be dead, and may still be writing.
                self.write(number)
                old = partition.leader_id
                in_sync = tuple(each for each in in_sync if each != old or old == leader)
            self.metadata.decide(number, leader=leader, in_sync=in_sync)
            self.seen["leader changes"] += leader != partition.leader_id

    async def kill_and_restart(self) -> None:
        broker = self.brokers[self.chance.choice(BROKERS)]
        if broker.is_serving:
            broker.process.kill()
            self.seen["kills"] += 1
            await asyncio.sleep(self.chance.choice([0.05, 1.0]))
            for number in range(PARTITIONS):
                self.leave_out(number, broker.broker_id)
                for _ in range(self.chance.choice([0, 40])):
                    self.write(number)
            await asyncio.sleep(self.chance.choice([0.05, 1.0]))
            broker.restart()

    def look(self) -> None:
        """No leader has a follower's partition on both lanes."""
        for broker in self.brokers.values():
            if not broker.is_serving or broker.handler is None:
                continue
            held = [
                (broker_id, key)
                for (broker_id, lane), stream in broker.handler.streams._streams.items()
                for key in stream.session.partitions
                if self.note_lane(lane)
            ]
            assert len(held) == len(set(held)), "a partition is pulled on both lanes"

    def note_lane(self, lane: Lane) -> bool:
        self.seen[f"held on {lane.name}"] += 1
        return True

    async def comes_to_rest(self, number: int) -> None:
        """Everybody has the same, and all that was acknowledged."""
        leader = self.brokers[self.metadata.partition(number).leader_id]
        self.metadata.decide(number, in_sync=self.metadata.partition(number).in_sync_replicas)
        logs = [each.replica(number).log for each in self.brokers.values()]
        for log in logs:
            assert log.failure is None, log.failure

        def ends() -> set[int]:
            return {log.log_end_offset for log in logs}

        await self.until(lambda: len(ends()) == 1)
        contents = [await self.content(each, number) for each in self.brokers.values()]
        assert all(each == contents[0] for each in contents), f"partition {number} differs"
        for (partition, offset), value in self.acknowledged.items():
            if partition == number:
                assert value in contents[0][offset], f"offset {offset} of {leader} is another"

    async def content(self, broker: CopyBroker, number: int) -> dict[int, bytes]:
        replica = broker.replica(number)
        log, offset, found = replica.log, 0, {}
        while offset < log.log_end_offset:
            read = await replica.directory.reader.read(
                log, offset, 1, upper_bound=log.log_end_offset
            )
            found[offset] = read.data
            offset = read.next_offset
        return found

    async def until(self, condition: object, seconds: float = 60) -> None:
        assert callable(condition)
        for _ in range(int(seconds * 100)):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came to that")


@pytest.mark.slow
def test_copies_are_alike_whatever_lane_they_came_on() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        storm = Storm(seed, seen)
        try:
            storm.world.run(storm.run())
            assert storm.world.findings() == []
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            storm.world.close()
        seen["acknowledged"] += len(storm.acknowledged)
    print(f"\n{dict(seen)}")
    for each in ("held on LIVE", "held on CATCH_UP", "leader changes", "kills", "acknowledged"):
        assert seen[each], f"the storms never saw `{each}`: {dict(seen)}"

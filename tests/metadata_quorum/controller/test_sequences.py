"""Whatever happens in whatever order: no clean election loses what was acknowledged.

A small model of the brokers runs beside the decisions: each replica's log is its length, a leader
appends, followers copy, the watermark follows the commit rule. Processes die, machines boot, disks
are wiped, and directories go back in time: a copy that was made while the process was dead lies
there when it starts again. After each step the image keeps every invariant, and a leader that is
not flagged as recovered unclean holds all that was acknowledged.
"""

import contextlib
import os
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metadata_quorum.controller import clusters
from tidelog.metadata.broker_reports import InSyncChange, InSyncMember
from tidelog.metadata.eligibility import in_sync_min
from tidelog.metadata.image.image import NO_LEADER, PartitionImage
from tidelog.metadata.records.entries import BrokerDirectory, MetadataRecord
from tidelog.metadata_quorum.controller.brokers.changes import Heartbeat, beat, drain, fence
from tidelog.metadata_quorum.controller.brokers.registration import register
from tidelog.metadata_quorum.controller.partitions.in_sync import alter_partitions
from tidelog.metadata_quorum.controller.partitions.leaders import (
    Election,
    elect_longest,
    elect_unclean,
    plan_balance,
)
from tidelog.metadata_quorum.controller.partitions.reassignment import (
    Reassignment,
    alter_reassignments,
)
from tidelog.metadata_quorum.controller.partitions.reassignment_plan import (
    drain_round,
    plan_reassignments,
)
from tidelog.wire.errors import TidelogError
from tidelog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

BROKERS = 4
EXAMPLES = int(os.environ.get("TIDELOG_TEST_EXAMPLES", "150"))
Steps = list[tuple[int, int, int, int]]


class Copy(msgspec.Struct, frozen=True):
    """A broker's directory as it was between two of its processes."""

    lengths: tuple[int, ...]
    stored: int
    clean: int


class Model:
    """The image, and what the brokers' disks hold."""

    def __init__(self, factor: int, flush: str, minimum: int) -> None:
        replicas = [
            tuple((start + place) % BROKERS + 1 for place in range(factor)) for start in range(3)
        ]
        self.image = clusters.with_topic(
            clusters.cluster(BROKERS), *replicas, flush=flush, in_sync_min=minimum
        )
        self.is_sync = flush == "sync"
        self.logs: list[dict[int, int]] = [{} for _ in replicas]
        self.acked = [0 for _ in replicas]
        self.starts = 0
        self.wiped: dict[int, int] = {}
        self.stored = {
            broker: int(self.image.brokers[BrokerId(broker)].epoch)
            for broker in range(1, BROKERS + 1)
        }
        """The epoch that lies in each broker's directory."""
        self.served = dict(self.stored)
        """The epoch under which each one was unfenced last."""
        self.copies: dict[int, list[Copy]] = {}

    def partition(self, number: int) -> PartitionImage:
        return clusters.partition(self.image, number % len(self.acked))

    def apply(self, records: tuple[MetadataRecord, ...]) -> None:
        before = self.image
        self.image = clusters.applied(before, records)
        for number in range(len(self.acked)):
            old, new = (clusters.partition(each, number) for each in (before, self.image))
            self._check_epochs(old, new)
            self._check_sets(new)
            self._check_leader(number, old, new)

    def _check_epochs(self, old: PartitionImage, new: PartitionImage) -> None:
        if old == new:
            return
        assert new.partition_epoch == old.partition_epoch + 1, "each change is one partition epoch"
        is_new_leader = new.leader_id != old.leader_id
        assert new.leader_epoch == old.leader_epoch + is_new_leader, "one leader epoch per leader"

    def _is_up(self, now: PartitionImage, replica: BrokerId) -> bool:
        """In words of its own, so that a mistake in the decisions does not hide here as well."""
        broker = self.image.brokers[replica]
        online = [each.uuid for each in broker.directories if each.is_online]
        mine = now.directories[now.replicas.index(replica)]
        return not broker.is_fenced and bool(online) and mine in (*online, b"")

    def _check_sets(self, now: PartitionImage) -> None:
        assert now.in_sync_replicas or now.last_known_eligible, "nobody is in sync"
        both = (*now.in_sync_replicas, *now.eligible_replicas)
        assert len(set(both)) == len(both), "in sync and eligible exclude each other"
        minimum = in_sync_min(self.image.topics[clusters.topic_id(1)])
        up = [each for each in both if self._is_up(now, each)]
        if now.leader_id == NO_LEADER:
            stopping = [each for each in up if self.image.brokers[each].is_shutting_down]
            assert up == stopping, "a leader could be elected"
            return
        assert now.leader_id in up, "a fenced broker leads"
        assert all(each in up for each in now.in_sync_replicas), "in sync with a dead broker"
        assert len(now.in_sync_replicas) < minimum or not now.eligible_replicas

    def _check_leader(self, number: int, old: PartitionImage, new: PartitionImage) -> None:
        if new.leader_id in (old.leader_id, NO_LEADER):
            return
        has = self.logs[number].get(new.leader_id, 0)
        if new.is_recovered_unclean:
            self.acked[number] = min(self.acked[number], has)
        assert has >= self.acked[number], f"leader {new.leader_id} lacks acknowledged records"

    def produce(self, a: int, b: int, c: int) -> None:
        """The leader appends; in-sync and other replicas copy; the watermark moves."""
        number = a % len(self.acked)
        now = self.partition(number)
        if now.leader_id == NO_LEADER:
            return
        logs = self.logs[number]
        logs[now.leader_id] = logs.get(now.leader_id, 0) + 1
        for place, replica in enumerate(now.replicas):
            if (b | c) >> place & 1 and self._is_up(now, replica):
                logs[replica] = logs[now.leader_id]
        minimum = in_sync_min(self.image.topics[clusters.topic_id(1)])
        if len(now.in_sync_replicas) >= minimum:
            watermark = min(logs.get(each, 0) for each in now.in_sync_replicas)
            self.acked[number] = max(self.acked[number], watermark)

    def alter(self, a: int, b: int, c: int) -> None:
        """A leader lets in who has caught up, and throws out some who lag."""
        number = a % len(self.acked)
        now = self.partition(number)
        if now.leader_id == NO_LEADER:
            return
        logs = self.logs[number]
        end = logs.get(now.leader_id, 0)
        wanted = [
            each
            for place, each in enumerate(now.replicas)
            if each == now.leader_id
            or (each in now.in_sync_replicas and not (b >> place) & 1)
            or (each not in now.in_sync_replicas and logs.get(each, 0) == end)
        ]
        change = InSyncChange(
            topic_id=clusters.topic_id(1),
            partition=number,
            leader_epoch=now.leader_epoch,
            partition_epoch=now.partition_epoch,
            members=tuple(
                InSyncMember(broker_id=each, broker_epoch=self.image.brokers[each].epoch)
                for each in wanted
            ),
        )
        epoch = self.image.brokers[now.leader_id].epoch
        decided = alter_partitions(self.image, now.leader_id, epoch, (change,))
        self.apply(decided.records)
        (result,) = decided.answer
        if result.error is None:
            assert result.partition_epoch == self.partition(number).partition_epoch
            again = alter_partitions(self.image, now.leader_id, epoch, (change,))
            assert not again.records, "a change that was made already changes nothing"

    def fence(self, a: int, b: int, c: int) -> None:
        broker = BrokerId(a % BROKERS + 1)
        self.apply(fence(self.image, broker, self.image.brokers[broker].epoch).records)

    def start(self, a: int, b: int, c: int) -> None:
        """The process starts again: after a kill, a clean stop, a boot, or on a new disk."""
        broker = a % BROKERS + 1
        known = self.image.brokers[BrokerId(broker)]
        self.starts += 1
        is_clean, is_booted, is_wiped = b % 4 == 1, b % 4 == 2, b % 4 == 3
        clean = int(known.epoch) if is_clean else -1
        self._copy(broker, clean)
        if is_wiped:
            self.wiped[broker] = self.wiped.get(broker, 0) + 1
            # Another directory: nobody has served from it, and no copy is one of it.
            self.stored[broker] = self.served[broker] = -1
            self.copies.pop(broker, None)
        wanted = clusters.registration(
            broker,
            self.starts,
            boot=f"boot {self.starts}" if is_booted or is_wiped else known.boot_id,
            clean=clean,
            directories=(BrokerDirectory(clusters.directory(broker, self.wiped.get(broker, 0))),),
            stored=self.stored[broker],
        )
        for number, logs in enumerate(self.logs):
            if is_wiped:
                logs[broker] = 0
            elif is_booted and not self.is_sync:
                logs[broker] = min(logs.get(broker, 0), c % 4)
            elif is_booted:
                logs[broker] = max(min(logs.get(broker, 0), self.acked[number]), 0)
        self.apply(register(self.image, wanted, is_living=False).records)
        if c % 2:
            self._unfence(broker)

    def _copy(self, broker: int, clean: int) -> None:
        """Somebody makes one of what lies there now."""
        lengths = tuple(logs.get(broker, 0) for logs in self.logs)
        self.copies.setdefault(broker, []).append(Copy(lengths, self.stored[broker], clean))

    def go_back(self, a: int, b: int, c: int) -> None:
        """The process dies, a copy takes the directory's place, and it starts again: clean marker
        and all, mostly on the same boot. An earlier copy of it may follow."""
        broker = a % BROKERS + 1
        copies = self.copies.get(broker, [])
        if not copies:
            return
        copy = copies[b % len(copies)]
        self.starts += 1
        known = self.image.brokers[BrokerId(broker)]
        wanted = clusters.registration(
            broker,
            self.starts,
            boot=f"boot {self.starts}" if c % 4 == 0 else known.boot_id,
            clean=copy.clean,
            directories=(BrokerDirectory(clusters.directory(broker, self.wiped.get(broker, 0))),),
            stored=copy.stored,
        )
        self.stored[broker] = copy.stored
        for number, logs in enumerate(self.logs):
            logs[broker] = copy.lengths[number]
        self.apply(register(self.image, wanted, is_living=False).records)
        if copy.stored < self.served[broker]:
            self._check_nobody_counts_on(BrokerId(broker))
        if c % 2:
            self._unfence(broker)

    def _check_nobody_counts_on(self, broker: BrokerId) -> None:
        for number in range(len(self.acked)):
            now = self.partition(number)
            sure = (*now.in_sync_replicas, *now.eligible_replicas)
            named = [each.uuid for each in self.image.brokers[broker].directories]
            if broker in sure and now.directories[now.replicas.index(broker)] not in named:
                # The last one that was sure, in a directory that is gone: it leads nowhere.
                continue
            assert broker not in sure or len(now.replicas) == 1, (
                f"broker {broker} counts with a directory that went back in time"
            )

    def unfence(self, a: int, b: int, c: int) -> None:
        self._unfence(a % BROKERS + 1)

    def _unfence(self, broker: int) -> None:
        """It stores its epoch before it wants to serve."""
        self.stored[broker] = int(self.image.brokers[BrokerId(broker)].epoch)
        self._beat(broker, wants_unfence=True)
        if not self.image.brokers[BrokerId(broker)].is_fenced:
            self.served[broker] = self.stored[broker]

    def stop(self, a: int, b: int, c: int) -> None:
        self._beat(a % BROKERS + 1, wants_shut_down=True)

    def directory(self, a: int, b: int, c: int) -> None:
        """A directory fails, or is found again."""
        broker = self.image.brokers[BrokerId(a % BROKERS + 1)]
        found = tuple(BrokerDirectory(each.uuid, not each.is_online) for each in broker.directories)
        self._beat(broker.broker_id, directories=found)

    def _beat(
        self,
        broker: int,
        *,
        wants_unfence: bool = False,
        wants_shut_down: bool = False,
        directories: tuple[BrokerDirectory, ...] = (),
    ) -> None:
        heartbeat = Heartbeat(
            broker_id=BrokerId(broker),
            broker_epoch=BrokerEpoch(self.image.brokers[BrokerId(broker)].epoch),
            applied_index=self.image.version,
            wants_unfence=wants_unfence,
            wants_shut_down=wants_shut_down,
            directories=directories,
        )
        decided = beat(self.image, heartbeat, required_index=self.image.version)
        self.apply(decided.records)
        assert decided.answer.is_fenced == self.image.brokers[BrokerId(broker)].is_fenced

    def reassign(self, a: int, b: int, c: int) -> None:
        now = self.partition(a)
        order = [BrokerId((b + place) % BROKERS + 1) for place in range(BROKERS)]
        target = tuple(order[: c % BROKERS])
        wanted = Reassignment(
            topic_id=clusters.topic_id(1), partition=now.partition, replicas=target
        )
        self.apply(alter_reassignments(self.image, (wanted,)).records)

    def balance(self, a: int, b: int, c: int) -> None:
        self.apply(plan_balance(self.image, limit=a % 3 + 1))

    def drain(self, a: int, b: int, c: int) -> None:
        broker = BrokerId(a % BROKERS + 1)
        # The last broker that takes replicas is not drained.
        with contextlib.suppress(TidelogError):
            self.apply(drain(self.image, broker, is_cancelled=b % 2 == 0).records)
        plan = drain_round(self.image, limit=c % 4 + 1)
        self.apply(alter_reassignments(self.image, plan.reassignments).records)

    def even(self, a: int, b: int, c: int) -> None:
        plan = plan_reassignments(self.image, moves_max=a % 4 + 1)
        self.apply(alter_reassignments(self.image, plan.reassignments).records)

    def unclean(self, a: int, b: int, c: int) -> None:
        if b % 4 == 0:
            self._elect(elect_unclean(self.image, clusters.topic_id(1), a % len(self.acked)))

    def longest(self, a: int, b: int, c: int) -> None:
        number = a % len(self.acked)
        ends = {
            BrokerId(broker): (LeaderEpoch(0), Offset(end))
            for broker, end in self.logs[number].items()
        }
        self._elect(elect_longest(self.image, clusters.topic_id(1), number, ends))

    def _elect(self, election: Election) -> None:
        self.apply(() if election.record is None else (election.record,))


ACTIONS: tuple[Callable[[Model, int, int, int], None], ...] = (
    Model.produce,
    Model.produce,
    Model.produce,
    Model.alter,
    Model.alter,
    Model.fence,
    Model.start,
    Model.start,
    Model.go_back,
    Model.unfence,
    Model.unfence,
    Model.stop,
    Model.directory,
    Model.reassign,
    Model.balance,
    Model.drain,
    Model.even,
    Model.unclean,
    Model.longest,
)


def run(factor: int, flush: str, minimum: int, steps: Steps) -> Model:
    """All steps; refusals change nothing."""
    model = Model(factor, flush, min(minimum, factor))
    for action, a, b, c in steps:
        before = model.image
        try:
            ACTIONS[action % len(ACTIONS)](model, a, b, c)
        except TidelogError:
            assert model.image is before, "a refusal changes nothing"
    return model


STEP = st.tuples(
    st.integers(0, len(ACTIONS) - 1), st.integers(0, 11), st.integers(0, 15), st.integers(0, 15)
)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    factor=st.integers(1, BROKERS),
    flush=st.sampled_from(["sync", "replicated"]),
    minimum=st.integers(0, 3),
    steps=st.lists(STEP, min_size=10, max_size=60),
)
def test_no_sequence_of_decisions_breaks_an_invariant_or_loses_an_acknowledged_record(
    factor: int, flush: str, minimum: int, steps: Steps
) -> None:
    run(factor, flush, minimum, steps)


def test_a_decision_is_a_function_of_its_image() -> None:
    kinds = len(ACTIONS)
    steps = [(each * 7 % kinds, each % 12, each * 5 % 16, each * 3 % 16) for each in range(80)]
    first, second = (run(3, "sync", 2, steps).image for _ in range(2))
    assert first.version == second.version > 20
    for topic_id, topic in first.topics.items():
        assert topic == second.topics[topic_id]

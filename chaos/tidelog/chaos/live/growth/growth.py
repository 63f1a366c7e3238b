"""Live cases of a cluster that changes under load: brokers, partitions, a topic made anew.

Owns the steps of each case and what has to hold after each of them. What is done is typed as an
operator types it. What producers were told and what is there in the end is compared as in every
other live run; what is promised here as well is that nobody has to be told of the change.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tidelog.chaos.live.cluster.load import ClusterLoad
from tidelog.chaos.live.cluster.nodes import VOTERS, TidelogCluster, directories_of
from tidelog.chaos.live.cluster.rounds import wait, wait_whole

THROTTLE_BYTES: Final = 20_000_000
"""A second, to each broker, while replicas move."""
NOTICE_SECONDS_MAX: Final = 60.0
CLEAN_SECONDS_MAX: Final = 60.0
UNEVEN_MAX: Final = 1
"""Replicas that one broker may hold more than another after a rebalance."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run."""

    name: str
    began_ns: int
    ended_ns: int
    acknowledged: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended_ns - self.began_ns) / 1e9


class Recreated(msgspec.Struct, frozen=True, kw_only=True):
    """When a topic was deleted and made again."""

    deleted_ns: int
    """The command to delete it began."""
    created_ns: int
    """The new one was there."""


class StandsStillError(RuntimeError):
    """What was to come back has not: the run has its verdict."""


class Stage:
    """A cluster under load, and what has been seen of it so far."""

    def __init__(self, cluster: TidelogCluster, load: ClusterLoad, healthy_seconds: float) -> None:
        self.cluster = cluster
        self.load = load
        self.phases: list[Phase] = []
        self.problems: list[str] = []
        self.is_felt = True
        """Whether what was done changed anything that could be missed."""
        self.recreated: Recreated | None = None
        self._healthy_seconds = healthy_seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Everything that is done in it counts to its stalls."""
        began_ns, before = time.monotonic_ns(), self.load.acknowledged
        yield
        self.load.check_running()
        self.phases.append(
            Phase(
                name=name,
                began_ns=began_ns,
                ended_ns=time.monotonic_ns(),
                acknowledged=self.load.acknowledged - before,
            )
        )
        print(f"  {name}: {self.phases[-1].seconds:.1f} s", flush=True)

    def healthy(self, name: str) -> None:
        """Nothing is done, all is in sync. It lasts until something was acknowledged: on a busy
        machine that may be longer than was asked for."""
        wait_whole(self.cluster, self.load)
        with self.phase(name):
            until, before = time.monotonic() + self._healthy_seconds, self.load.acknowledged

            def is_over() -> str | None:
                if time.monotonic() < until:
                    return "it goes on"
                return None if self.load.acknowledged > before else "nothing was acknowledged"

            longest = self._healthy_seconds + NOTICE_SECONDS_MAX
            self.wait(is_over, longest, tried="write while nothing is done")

    def wait(self, condition: Callable[[], str | None], seconds_max: float, *, tried: str) -> None:
        """As long as every producer runs."""
        wait(self.cluster, self.load, condition, seconds_max, tried=tried)

    def wait_written(self, since_ns: int, *, tried: str) -> None:
        """Until every producer was answered by every partition for what it sent since then."""

        def is_written() -> str | None:
            if self.load.oldest_ns >= since_ns:
                return None
            return "some producer has written nothing to some partition"

        self.wait(is_written, NOTICE_SECONDS_MAX, tried=tried)

    def expect(self, is_so: bool, problem: str) -> None:
        """What does not hold fails the run."""
        if not is_so:
            self.problems.append(problem)

    @property
    def is_valid(self) -> bool:
        """Something was written in every phase, and what was done could be felt."""
        return self.is_felt and bool(self.phases) and all(each.acknowledged for each in self.phases)


def brokers_come_and_go(stage: Stage) -> None:
    """Three brokers, five, three."""
    cluster = stage.cluster
    stage.healthy("3 brokers")
    with stage.phase("2 brokers come"):
        cluster.join_further()
    with stage.phase("rebalance"):
        throttle = str(THROTTLE_BYTES)
        cluster.done("cluster", "rebalance", "--execute", "--throttle", throttle)
        wait_whole(cluster, stage.load)
    _check_even(stage)
    stage.healthy("5 brokers")
    for number in cluster.further:
        refused = cluster.typed("broker", "remove", str(number))
        stage.expect(refused.code == 2, f"broker {number} was removed while it was alive")
    with stage.phase("2 brokers are drained"):
        for number in cluster.further:
            throttle = str(THROTTLE_BYTES)
            cluster.done("broker", "drain", str(number), "--wait", "--throttle", throttle)
    brokers = cluster.brokers()
    left = {number: brokers[number].replica_count for number in cluster.further}
    stage.expect(not any(left.values()), f"drained brokers hold replicas still: {left}")
    with stage.phase("2 brokers go"):
        for left_count, number in enumerate(cluster.further, start=1):
            cluster.nodes[number].stop()
            # On a busy machine its session may end by silence only, seconds after the process.
            cluster.wait_registered(VOTERS + len(cluster.further) - left_count)
            cluster.done("broker", "remove", str(number))
    stage.expect(len(cluster.brokers()) == VOTERS, "a removed broker is listed still")
    stage.healthy("3 brokers again")


def _check_even(stage: Stage) -> None:
    """After a rebalance."""
    brokers = stage.cluster.brokers()
    held = {number: each.replica_count for number, each in brokers.items()}
    led = {number: each.leader_count for number, each in brokers.items()}
    print(f"  replicas by broker {held}, leaders {led}", flush=True)
    for what, counts in (("replicas", held), ("leaders", led)):
        is_even = max(counts.values()) - min(counts.values()) <= UNEVEN_MAX
        stage.expect(is_even, f"{what} are not even after the rebalance: {counts}")
    throttled = stage.cluster.done("config", "get", "--cluster", "--changed")
    stage.expect("throttle" not in throttled, "the throttle of the rebalance is there still")


def partitions_grow(stage: Stage) -> None:
    """More partitions while producers write to those that are there."""
    cluster = stage.cluster
    stage.healthy(f"{cluster.partition_count} partitions")
    with stage.phase("partitions come"):
        before_ns = time.monotonic_ns()
        cluster.done("topic", "alter", cluster.topic, "-p", str(cluster.partitions_most))
        cluster.partition_count = cluster.partitions_most
        stage.wait_written(before_ns, tried="find the new partitions")
    stage.healthy(f"{cluster.partition_count} partitions")
    stage.expect(
        len(cluster.seats()) == cluster.partitions_most, "the topic has another partition count"
    )


def topic_is_made_anew(stage: Stage) -> None:
    """Deleted and made again under its name while a broker is dead and producers write on.

    When the broker is back it is given replicas of the new topic, and leads some of them.
    """
    cluster, victim = stage.cluster, VOTERS
    stage.healthy("the old topic")
    old_id = cluster.topic_id()
    with stage.phase("a broker dies"):
        cluster.kill(victim)
        stage.wait_written(time.monotonic_ns(), tried="write without the broker")
    old = directories_of(cluster.nodes[victim], old_id)
    stage.expect(bool(old), "the dead broker held nothing of the old topic")
    with stage.phase("deleted, made again"):
        cluster.wait_registered(VOTERS)
        deleted_ns = time.monotonic_ns()
        cluster.done("topic", "delete", cluster.topic, "--execute")
        cluster.create_topic()
        created_ns = time.monotonic_ns()
        stage.wait_written(created_ns, tried="write to the new topic")
    stage.recreated = Recreated(deleted_ns=deleted_ns, created_ns=created_ns)
    stage.expect(cluster.topic_id() != old_id, "the new topic has the old one's id")
    with stage.phase("the broker is back"):
        cluster.quorum.start(victim)
        cluster.wait_registered(VOTERS + len(cluster.further))
        stage.wait(
            lambda: _remains(cluster, old_id, victim), CLEAN_SECONDS_MAX, tried="delete the topic"
        )
    _check_orphans(stage, victim, old_id)
    with stage.phase("it gets replicas"):
        cluster.done("cluster", "rebalance", "--execute")
        wait_whole(cluster, stage.load)
    _check_even(stage)
    stage.healthy("the new topic")


def _remains(cluster: TidelogCluster, topic_id: bytes, victim: int) -> str | None:
    """What the old topic has left on the disks of those that saw it go."""
    for node in cluster.quorum.running():
        found = directories_of(node, topic_id)
        if found and node.node_id != victim:
            return f"node {node.node_id} keeps {len(found)} directories, the first is {found[0]}"
    return None


def _check_orphans(stage: Stage, victim: int, topic_id: bytes) -> None:
    """A node never removes what the metadata do not name: it says so, and does not serve it."""
    node = stage.cluster.nodes[victim]
    found, said = directories_of(node, topic_id), node.log_text()
    silent = [name for name in found if f"{name}/" not in said]
    stage.expect(not silent, f"the broker that was dead keeps {silent} and does not say so")
    print(f"  {len(found)} directories of the old topic are kept by broker {victim}, not served")

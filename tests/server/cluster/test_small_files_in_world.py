"""Each small file of a data directory that is gone, empty, damaged or old, with logs that have lost
their ends or not: what another replica holds is never lost for it."""

import itertools
from collections.abc import Callable

import pytest

from tests.server.cluster.test_files_gone_in_world import stop_in_order
from tests.server.support.cluster_in_world import Cluster, three
from tests.server.support.replicas_in_world import ReplicatedTopic
from tidelog.broker.log.names import directory_name
from tidelog.chaos.sim.ports.medium import Directory, Inode

pytestmark = pytest.mark.slow
FILES = (
    "marks",
    "starts",
    "broker_epoch.json",
    "clock.json",
    "log_checkpoint",
    "clean_shutdown.json",
    "node.json",
    "quorum/marks",
)
AFTER_A_STOP = ("log_checkpoint", "clean_shutdown.json")
"""There only once the node has stopped in order."""
KEEPS_THE_NODE_DOWN = ("node.json", "quorum/marks")
"""Without these a node does not start, and says why."""
LEFT_BYTES = 40
"""Less than any of them had when the node began to serve."""


def zeroed(content: bytes, older: bytes) -> bytes:
    del older
    return bytes(len(content))


CHANGES: dict[str, Callable[[bytes, bytes], bytes | None]] = {
    "missing": lambda content, older: None,
    "empty": lambda content, older: b"",
    "zeroed": zeroed,
    "cut": lambda content, older: content[:LEFT_BYTES],
    "older": lambda content, older: older,
}
BELIEVED_AS_GONE_BACK = ("marks", "broker_epoch.json")


class Files:
    """Of one node's machine, as another program sees them."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._machine = cluster.world.machine(f"n{number}")

    def place(self, path: str) -> tuple[Directory, str]:
        """The directory, and the name in it."""
        medium, _, name = path.rpartition("/")
        return self._machine.medium(medium or "data").root, name

    def read(self, path: str) -> bytes:
        """Empty if it is not there."""
        root, name = self.place(path)
        found = root.seen.get(name)
        return bytes(found.seen) if isinstance(found, Inode) else b""

    def write(self, path: str, content: bytes | None) -> None:
        """Durable at once; None removes it."""
        root, name = self.place(path)
        root.pending.clear()
        for names in (root.seen, root.durable):
            names.pop(name, None)
            if content is not None:
                inode = Inode()
                inode.seen[:] = inode.durable[:] = content
                inode.certain_bytes = len(content)
                names[name] = inode

    def newest_log(self, topic: ReplicatedTopic) -> Inode:
        """The file of the partition's only segment."""
        place = self._machine.medium("data").root.seen[directory_name(topic.key)]
        assert isinstance(place, Directory)
        found = place.seen[max(each for each in place.seen if each.endswith(".log"))]
        assert isinstance(found, Inode)
        return found


def shorten(inode: Inode, size_bytes: int) -> None:
    """At the end of a batch: nothing is torn."""
    inode.pending.clear()
    for content in (inode.seen, inode.durable):
        del content[size_bytes:]
    inode.certain_bytes = min(inode.certain_bytes, size_bytes)


async def served(cluster: Cluster) -> ReplicatedTopic:
    topic = await ReplicatedTopic.create(cluster)
    await topic.in_sync(1, 2, 3)
    await topic.produce(8)
    return topic


async def suffer(name: str, change: str, cluster: Cluster, *, are_shorter: bool) -> None:
    """The victim's file changes while all are down; it starts first."""
    topic = await served(cluster)
    victim = next(each for each in (1, 2, 3) if each != topic.now().leader_id)
    files = Files(cluster, victim)
    # Another life is between the older copy and what takes its place.
    await stop_in_order(cluster, victim)
    older, log_bytes = files.read(name), len(files.newest_log(topic).seen)
    await cluster.nodes[victim].restart()
    await topic.in_sync(1, 2, 3)
    await topic.produce(8)
    await topic.in_sync(1, 2, 3)
    if name in AFTER_A_STOP:
        await stop_in_order(cluster, victim)
    for node in cluster.nodes.values():
        if node.node is not None:
            node.kill()
    content = files.read(name)
    files.write(name, CHANGES[change](content, older))
    if are_shorter:
        shorten(files.newest_log(topic), log_bytes)
    refuses = name in KEEPS_THE_NODE_DOWN and change != "older"
    if name != "node.json" or change != "missing":
        # Without the file the node of these tests would be formatted anew.
        cluster.nodes[victim].start()
    others = [cluster.nodes[each] for each in (1, 2, 3) if each != victim]
    if refuses:
        ready = [each.ready for each in others]
        for each in others:
            each.start()
        await cluster.wait(lambda: all(x.ready > y for x, y in zip(others, ready, strict=True)))
    else:
        for each in others:
            await each.restart()
    await topic.produce(4)
    await topic.holds_all()
    if not refuses:
        assert cluster.nodes[victim].error is None
        await topic.in_sync(1, 2, 3)
        await topic.produce(1)
        await cluster.wait(lambda: len(set(topic.ends())) == 1)


@pytest.mark.parametrize("are_shorter", [False, True], ids=["logs whole", "logs shorter"])
@pytest.mark.parametrize(("name", "change"), list(itertools.product(FILES, CHANGES)))
def test_nothing_is_lost_for_a_small_file_that_another_replica_can_do_without(
    name: str, change: str, are_shorter: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(cluster: Cluster) -> None:
        await suffer(name, change, cluster, are_shorter=are_shorter)

    three().run(work)
    if name in KEEPS_THE_NODE_DOWN:
        return
    is_told = any("directory_went_back" in each for each in caplog.messages)
    assert is_told == (name in BELIEVED_AS_GONE_BACK)
    is_doubted = any("marks_not_believed" in each for each in caplog.messages)
    assert is_doubted == (name == "marks")


@pytest.mark.parametrize("change", ["missing", "empty", "zeroed", "cut", "older"])
def test_the_only_replica_leads_without_its_marks_and_is_flagged(change: str) -> None:
    async def work(cluster: Cluster) -> None:
        topic = await ReplicatedTopic.create(cluster, replicas=1)
        await topic.produce(8)
        older = Files(cluster, 1).read("marks")
        await stop_in_order(cluster, 1)
        await cluster.nodes[1].restart()
        await topic.produce(8)
        cluster.nodes[1].kill()
        files = Files(cluster, 1)
        files.write("marks", CHANGES[change](files.read("marks"), older))
        await cluster.nodes[1].restart()
        assert topic.now().is_recovered_unclean
        await topic.holds_all()
        await topic.produce(4)
        await topic.holds_all()

    Cluster(controllers=1, roles="broker,controller").run(work)

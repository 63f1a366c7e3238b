"""The operator's day on real processes: what docs/operations.md tells, typed."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.local_cluster import CLUSTER_ID, LocalCluster, without_uuids
from tests.cli.running import assert_three_lines
from tests.support.certificates import Authority
from tests.support.waiting import wait_until
from tidelog.cli.quorum.recover import SENTENCE

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.fixture
def five(tmp_path: Path) -> Iterator[LocalCluster]:
    """Files and ports for five nodes; none is formatted."""
    cluster = LocalCluster(tmp_path, 5)
    try:
        yield cluster
    finally:
        cluster.close()


def three_voters(cluster: LocalCluster) -> LocalCluster:
    cluster.format_voters(1, 2, 3)
    cluster.start(1, 2, 3)
    return cluster


def test_three_formatted_nodes_are_a_quorum_that_hands_over(five: LocalCluster) -> None:
    cluster = three_voters(five)
    before = cluster.quorum()
    assert before.voters == [1, 2, 3]
    assert all(each.lag == 0 for each in before.members)
    other = next(node for node in before.voters if node != before.leader_id)
    text = cluster.ok("quorum", "transfer", str(other))
    assert re.fullmatch(rf"node {other} leads in term \d+\n", text)
    after = cluster.quorum()
    assert after.leader_id == other
    assert after.term > before.term
    assert cluster.ok("quorum", "transfer", str(other)).startswith(f"node {other} leads")
    lines = cluster.ok("quorum", "describe").splitlines()
    assert lines[0].startswith(f"Leader: {other}  Term: {after.term}  LastIndex: ")
    assert len(lines) == 5
    brokers = json.loads(cluster.ok("broker", "list", "--json"))
    assert [each["broker_id"] for each in brokers] == [1, 2, 3]
    assert not any(each["is_fenced"] for each in brokers)
    for words, why, hint in (
        (("quorum", "transfer", "7"), "it has 1, 2, 3", "--join"),
        (("quorum", "add-voter", "7"), "it has 1, 2, 3", "--join"),
        (("quorum", "remove-voter", "7"), "it has 1, 2, 3", "quorum describe"),
        (("broker", "drain", "9"), "1, 2, 3", ""),
        (("metadata", "show", "/nowhere"), "there is no `nowhere`", ""),
        (("config", "set", "--topic", "none", "segment.bytes=65536"), "none", ""),
    ):
        done = cluster.run(*words)
        assert done.code == 2, done
        assert_three_lines(done.err, why=why, hint=hint)
    done = cluster.run("storage", "info", str(cluster.data(1)))
    assert done.code == 1
    assert_three_lines(done.err, why="has it open", hint="")


def test_topics_of_a_cluster_of_three_have_three_replicas_and_only_producers_make_any(
    five: LocalCluster,
) -> None:
    cluster = three_voters(five)
    drained = cluster.run("broker", "drain", "3", "--dry-run")
    assert "node 3 stays one of 3 voters" in drained.err
    assert "tidelog quorum remove-voter 3" in drained.err
    assert cluster.ok("topic", "create", "orders").endswith("replication factor 3\n")
    for words in (("consume", "ordres", "-e"), ("produce", "ordres")):
        done = cluster.run(*words)
        assert done.code == 2, done
        assert_three_lines(done.err, why="no topic", hint="orders")
    assert cluster.ok("topic", "list", "-q").split() == ["orders"]


def test_a_voter_of_another_cluster_is_named_as_the_reason_why_nobody_leads(
    five: LocalCluster,
) -> None:
    five.format_voters(1, 2, 3, strangers=(2,))
    five.begin(1, 2)
    five.wait_logged(1, "no_controller")
    told = five.log(1).read_text("utf-8")
    assert "node 2: [WRONG_CLUSTER] it is meant for cluster 'test-cluster'" in told
    assert "node 3: [UNAVAILABLE]" in told


def test_a_quorum_grows_from_one_to_three_to_five_and_shrinks(five: LocalCluster) -> None:
    five.format(1, "--standalone", "-C", CLUSTER_ID)
    five.start(1)
    assert five.quorum().voters == [1]
    for nodes in ((2, 3), (4, 5)):
        for node in nodes:
            five.format(node, "--join", "-C", CLUSTER_ID)
        five.start(*nodes)
        for node in nodes:
            learner = five.wait_learner(node)
            assert "nothing was done" in five.ok("quorum", "add-voter", str(node), "--dry-run")
            assert five.ok("quorum", "add-voter", str(node)).splitlines()[0] == (
                f"node {node} with directory {learner.directory_uuid} is a voter"
            )
        created = five.run("topic", "create", f"with-{len(five.quorum().voters)}")
        assert created.code == 0
        assert "one copy of each partition" in created.err, "formatted for one broker, now several"
        assert "default.replication.factor=3" in created.err
    assert five.quorum().voters == [1, 2, 3, 4, 5]
    assert "is a voter already" in five.ok("quorum", "add-voter", "5")
    wrong = five.run("quorum", "remove-voter", "5", "--directory-uuid", "0" * 32)
    assert wrong.code == 2
    assert_three_lines(wrong.err, why="it has not the directory uuid", hint="quorum describe")
    leader = five.quorum().leader_id
    for node in (leader, *(each for each in (5, 4) if each != leader)):
        if len(five.quorum().voters) > 3:
            five.ok("quorum", "remove-voter", str(node))
    assert len(five.quorum().voters) == 3
    names = five.ok("topic", "list", "-q").split()
    assert names == ["with-3", "with-5"]


def test_a_wiped_node_comes_back_as_a_learner_and_is_promoted(five: LocalCluster) -> None:
    cluster = three_voters(five)
    old = cluster.quorum().member(3).directory_uuid
    cluster.stop(3, number=signal.SIGKILL)
    (cluster.data(3) / "quorum").rename(cluster.directory / "lost")
    cluster.format(3, "--join", "-C", CLUSTER_ID)
    cluster.start(3)
    new = cluster.wait_learner(3).directory_uuid
    assert new != old
    refused = cluster.run("quorum", "add-voter", "3")
    assert refused.code == 2
    assert_three_lines(refused.err, why=f"another directory, {old}", hint=f"--directory-uuid {old}")
    unclear = cluster.run("quorum", "remove-voter", "3")
    assert_three_lines(unclear.err, why=f"{old} (voter)", hint="--directory-uuid")
    text = cluster.ok("quorum", "remove-voter", "3", "--directory-uuid", old)
    assert without_uuids(text) == (
        "voter 3 with directory UUID is removed\nvoters: 1, 2; learners: 3\n"
    )
    cluster.ok("quorum", "add-voter", "3")
    assert cluster.quorum().member(3).directory_uuid == new


def test_a_flipped_bit_is_told_and_repaired_from_the_others(five: LocalCluster) -> None:
    cluster = three_voters(five)
    for number in range(3):
        cluster.ok("topic", "create", f"topic-{number}")
    cluster.stop(2)
    (file,) = (cluster.data(2) / "quorum").glob("journal-*.log")
    data = bytearray(file.read_bytes())
    data[data.find(b"topic-1") + 6] ^= 1
    file.write_bytes(data)
    done = cluster.run("storage", "info", str(cluster.data(2)))
    assert done.code == 1
    assert "were acknowledged and are lost here" in done.out.decode()
    cluster.start(2)
    cluster.ok("topic", "create", "afterwards")
    member = cluster.quorum().member(2)
    assert (member.lag, member.state in ("following", "leading")) == (0, True)
    cluster.stop(2)
    again = cluster.run("storage", "info", str(cluster.data(2))).out.decode()
    assert "no entry is lost by it" in again


def test_without_a_majority_one_node_goes_on_after_the_sentence(five: LocalCluster) -> None:
    cluster = three_voters(five)
    cluster.ok("topic", "create", "kept")
    cluster.ok("group", "reset-offsets", "g", "kept", "--to-earliest", "--execute")
    cluster.stop(2, 3, number=signal.SIGKILL)
    done = cluster.run("quorum", "describe")
    assert done.code == 1
    assert_three_lines(done.err, why="", hint="tidelog quorum recover --help")
    wait_until(lambda: b"No controller for" in cluster.run("cluster", "describe").out)
    described = cluster.ok("cluster", "describe").splitlines()
    assert "and may have changed" in described[1]
    assert [line.split()[2:5] for line in described[-2:]] == [["-", "not", "reached"]] * 2
    topics = cluster.run("topic", "describe", "--json")
    assert topics.code == 0
    assert topics.err.startswith("No controller for")
    groups = cluster.run("group", "list")
    assert groups.code == 1
    assert_three_lines(groups.err, why="no controller for", hint="tidelog quorum recover --help")
    busy = cluster.run("quorum", "recover", "--unsafe", str(cluster.data(1)))
    assert busy.code == 1
    assert_three_lines(busy.err, why="has it open", hint="")
    cluster.stop(1)
    done = cluster.run(
        "quorum", "recover", "--unsafe", str(cluster.data(1)), "--yes-i-accept", SENTENCE
    )
    assert done.code == 0, done
    assert "node 1 is the only voter now" in done.out.decode()
    cluster.start(1)
    assert cluster.quorum().voters == [1]
    assert cluster.ok("topic", "list", "-q") == "kept\n"
    cluster.ok("topic", "create", "new", "-r", "1")
    (cluster.data(2) / "quorum").rename(cluster.directory / "old2")
    cluster.format(2, "--join", "-C", CLUSTER_ID)
    cluster.start(2)
    cluster.wait_learner(2)
    cluster.ok("quorum", "add-voter", "2")
    assert cluster.quorum().voters == [1, 2]


def test_exported_metadata_begin_a_new_cluster_beside_the_old_records(
    five: LocalCluster,
) -> None:
    five.format(1, "--standalone", "-C", CLUSTER_ID)
    five.start(1)
    five.ok("topic", "create", "orders", "-p", "2", "--config", "segment.bytes=65536")
    five.ok("config", "set", "--cluster", "segment.bytes=131072")
    file = five.directory / "metadata.tqs"
    text = five.ok("metadata", "export", str(file))
    assert "1 topic with 2 partitions, 1 broker" in text
    again = five.run("metadata", "export", str(file))
    assert again.code == 2
    assert_three_lines(again.err, why="exists already", hint="new file")
    five.stop(1)
    (five.data(1) / "quorum").rename(five.directory / "lost")
    five.format(1, "--standalone", "--restore", str(file))
    five.start(1)
    (topic,) = json.loads(five.ok("topic", "describe", "orders", "--json"))
    assert topic["configs"] == {"segment.bytes": "65536"}
    assert [each["leader"] for each in topic["partitions"]] == [1, 1]
    changed = json.loads(five.ok("config", "get", "--cluster", "--changed", "--json"))
    assert [(each["name"], each["value"]) for each in changed] == [("segment.bytes", "131072")]


def test_topics_and_settings_change_while_the_cluster_runs(five: LocalCluster) -> None:
    five.format(1, "--standalone", "-C", CLUSTER_ID)
    five.start(1)
    five.ok("topic", "create", "orders", "-p", "2")
    assert "would alter" in five.ok("topic", "alter", "orders", "-p", "4", "--dry-run")
    assert five.ok("topic", "alter", "orders", "-p", "4", "--config", "segment.bytes=65536") == (
        "altered topic orders: segment.bytes=65536, 4 partitions\n"
    )
    less = five.run("topic", "alter", "orders", "-p", "1")
    assert less.code == 2
    assert_three_lines(less.err, why="never taken away", hint="")
    text = five.ok("config", "get", "--topic", "orders", "segment.bytes")
    assert text.splitlines()[1].split() == ["segment.bytes", "65536", "target"]
    five.ok("config", "delete", "--topic", "orders", "segment.bytes")
    (entry,) = json.loads(five.ok("config", "get", "--topic", "orders", "segment.bytes", "--json"))
    assert entry["source"] == "default"
    wrong = five.run("config", "set", "--topic", "orders", "segment.byte=1")
    assert wrong.code == 2
    assert_three_lines(wrong.err, why="no such setting", hint="segment.bytes")
    assert five.ok("metadata", "ls", "/topics") == "orders/\n"
    shown = json.loads(five.ok("metadata", "show", "/topics/orders"))
    assert len(shown["partitions"]) == 4
    assert five.ok("partition", "elect-leaders", "--all") == "every leader is as asked for\n"
    assert five.ok("partition", "list-reassignments") == "no move is under way\n"
    told = five.ok("topic", "delete", "orders")
    assert told.splitlines() == [
        "would delete orders: 4 partitions with all records",
        "nothing was done; add --execute",
    ]
    assert five.ok("topic", "delete", "orders", "--execute").startswith("deleted orders")
    gone = five.run("topic", "delete", "orders")
    assert gone.code == 2
    assert five.ok("topic", "delete", "orders", "--if-exists", "--execute") == ""
    last = five.run("quorum", "remove-voter", "1")
    assert last.code == 2
    assert_three_lines(last.err, why="last voter", hint="")


TLS: Final = """
[listeners.cluster.tls]
certificate = "{certificate}"
key = "{key}"
client_ca = "{authority}"
"""


@pytest.mark.parametrize(
    ("mistake", "leaders_word", "own_word"),
    [
        ("another host", "certificate is for another host name", "refused their vote"),
        ("another authority", "authority that is not trusted here", "client's certificate"),
        ("plaintext", "does not speak TLS", "closed the connection at once"),
        ("formatted anew", "which has", "format it with --join"),
    ],
)
def test_a_voter_that_the_others_cannot_reach_is_told_with_the_cause_on_both_sides(
    five: LocalCluster, tmp_path: Path, mistake: str, leaders_word: str, own_word: str
) -> None:
    cluster = five
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")

    def secure(node: int, signer: Authority, name: str = "IP:127.0.0.1") -> None:
        pair = signer.issue(f"{mistake.split()[-1]}{node}", names=(name,))
        text = TLS.format(certificate=pair.certificate, key=pair.key, authority=ours.certificate)
        plain = cluster.file(node).read_text("utf-8").partition("[listeners.cluster.tls]")[0]
        cluster.file(node).write_text(plain + text, encoding="utf-8")

    if mistake != "formatted anew":
        for node in (1, 2, 3):
            secure(node, ours)
    uuids = cluster.format_voters(1, 2, 3)
    cluster.start(1, 2, 3)
    if cluster.quorum().leader_id == 3:
        cluster.ok("quorum", "transfer", "1")
    cluster.stop(3)
    match mistake:
        case "another host":
            secure(3, ours, "DNS:elsewhere.example")
        case "another authority":
            secure(3, theirs)
        case "plaintext":
            plain = cluster.file(3).read_text("utf-8").partition("[listeners.cluster.tls]")[0]
            cluster.file(3).write_text(plain, encoding="utf-8")
        case _:
            cluster.data(3).rename(cluster.directory / "old")
            new = "0123456789abcdef0123456789abcdef"
            voters = ",".join(
                f"{node}@{cluster.cluster[node]}/{new if node == 3 else uuids[node]}"
                for node in (1, 2, 3)
            )
            cluster.format(3, "-C", CLUSTER_ID, "--initial-voters", voters)
    cluster.begin(3)
    leader = cluster.quorum().leader_id
    cluster.wait_logged(leader, "quorum_member_unreached")
    cluster.wait_logged(leader, leaders_word)
    cluster.wait_logged(3, own_word)

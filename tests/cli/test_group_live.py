"""`tidelog group` against a real node: offsets set, moved, kept and forgotten, with a member and
without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from tests.cli.running import (
    assert_three_lines,
    run_cli,
)
from tests.support.node import NodeProcess, running_node
from tests.support.waiting import HANG_SECONDS
from tidelog.cli.frame.patience import VARIABLE as PATIENCE
from tidelog.cli.main import main
from tidelog.client import AdminClient, NewTopic, Producer
from tidelog.client.types.groups import MemberToRemove
from tidelog.v1 import groups_pb2

pytestmark = [pytest.mark.slow, pytest.mark.live]

HEARTBEAT: Final = "/tidelog.v1.GroupService/GroupHeartbeat"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A topic of two partitions with 100 and 10 records."""
    with running_node(tmp_path_factory.mktemp("node")) as started:
        with AdminClient(bootstrap_servers=started.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 2)])
        with Producer(bootstrap_servers=started.bootstrap) as producer:
            for partition, count in ((0, 100), (1, 10)):
                for number in range(count):
                    producer.send("orders", b"%d" % number, partition=partition)
        yield started


class Desk:
    """Types commands in this process: a process for each would take longer than what it does."""

    def __init__(self, node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self.node = node
        self._capsys = capsys

    def type(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What is printed on both streams."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(PATIENCE, str(HANG_SECONDS * 1000))
            found = main([*words, "-b", self.node.bootstrap])
        out, errors = self._capsys.readouterr()
        assert found == code, errors
        return out, errors

    def ok(self, *words: str) -> str:
        out, errors = self.type("group", *words)
        assert errors == ""
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def offsets(self, group: str) -> dict[int, int]:
        (shown,) = self.json("describe", group)
        return {each["partition"]: each["committed_offset"] for each in shown["partitions"]}


@pytest.fixture
def desk(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(node, capsys)


def join(node: NodeProcess, group: str, member_id: str) -> None:
    """One heartbeat: the group has a member until its session is over."""
    request = groups_pb2.GroupHeartbeatRequest(
        group=group,
        member_id=member_id,
        subscription=groups_pb2.Subscription(topics=["orders"]),
        owned=groups_pb2.OwnedPartitions(),
    )
    with grpc.insecure_channel(node.bootstrap) as channel:
        call: Any = channel.unary_unary(HEARTBEAT)
        answer = groups_pb2.GroupHeartbeatResponse.FromString(
            call(request.SerializeToString(), timeout=HANG_SECONDS)
        )
    assert not answer.HasField("error"), answer.error


def test_offsets_are_set_moved_kept_and_forgotten(desk: Desk, tmp_path: Path) -> None:
    desk.ok("reset-offsets", "billing", "orders", "--to-earliest", "--execute")
    assert desk.offsets("billing") == {0: 0, 1: 0}
    desk.ok("reset-offsets", "billing", "--shift-by", "30", "--execute")
    assert desk.offsets("billing") == {0: 30, 1: 10}
    (listed,) = [each for each in desk.json("list") if each["group"] == "billing"]
    assert (listed["state"], listed["member_count"]) == ("empty", 0)
    (shown,) = desk.json("describe", "billing")
    assert shown["lag"] == 70
    copy = str(tmp_path / "offsets.csv")
    desk.ok("reset-offsets", "billing", "--to-current", "--export", copy)
    for way, expected in (
        (("--to-latest",), {0: 100, 1: 10}),
        (("--to-offset", "5"), {0: 5, 1: 5}),
        (("--by-duration", "1h"), {0: 0, 1: 0}),
        (("--to-datetime", "2999-01-01T00:00:00Z"), {0: 100, 1: 10}),
        (("--from-file", copy), {0: 30, 1: 10}),
    ):
        desk.ok("reset-offsets", "billing", *way, "--execute")
        assert desk.offsets("billing") == expected, way
    desk.ok("delete-offsets", "billing", "orders:1", "--execute")
    assert desk.offsets("billing") == {0: 30}
    desk.ok("delete", "billing", "--execute")
    assert "billing" not in desk.ok("list", "-q").split()


def test_a_group_with_a_member_is_shown_and_left_alone(desk: Desk) -> None:
    desk.ok("reset-offsets", "reports", "orders:0", "--to-offset", "7", "--execute")
    join(desk.node, "reports", "m-1")
    (shown,) = desk.json("describe", "reports")
    (member,) = shown["members"]
    assert member["member_id"] == "m-1"
    assert member["topics"] == ["orders"]
    owners = {each["partition"]: each["member_id"] for each in shown["partitions"]}
    assert owners == {0: "m-1", 1: "m-1"}
    assert "reports" in desk.ok("list", "--only-with-lag", "-q").split()
    for words in (
        ("reset-offsets", "reports", "--to-latest"),
        ("reset-offsets", "reports", "--to-latest", "--execute"),
        ("delete", "reports", "--execute"),
    ):
        _, errors = desk.type("group", *words, code=1)
        assert "[GROUP_NOT_EMPTY]" in errors
        assert_three_lines(errors, why="member", hint="")
    assert desk.offsets("reports")[0] == 7
    with AdminClient(bootstrap_servers=desk.node.bootstrap) as admin:
        chosen = [MemberToRemove(member_id="m-1")]
        assert admin.remove_group_members("reports", chosen) == ["m-1"]
        assert admin.list_group_offsets("reports")["reports"]
    desk.ok("reset-offsets", "reports", "--to-latest", "--execute")
    assert desk.offsets("reports")[0] == 100


def test_a_name_that_is_nearly_right_is_told(desk: Desk) -> None:
    desk.ok("reset-offsets", "shipping", "orders", "--to-latest", "--execute")
    _, errors = desk.type("group", "describe", "shiping", code=2)
    assert_three_lines(errors, why="shiping", hint="did you mean `shipping`?")


def consumed(node: NodeProcess, *words: str) -> list[str]:
    """What a member prints."""
    done = run_cli("consume", "orders", *words, bootstrap=node.bootstrap)
    assert (done.code, done.err) == (0, "")
    return done.out.decode().split()


def test_a_member_prints_what_its_group_has_not_printed_before(
    desk: Desk, node: NodeProcess
) -> None:
    first = consumed(node, "-g", "printers", "-o", "beginning", "-c", "40")
    assert len(first) == 40
    rest = consumed(node, "-g", "printers", "-o", "beginning", "-e", "-f", "%p-%o\\n")
    assert len(rest) == len(set(rest)) == 70
    assert consumed(node, "-g", "printers", "-e") == []
    assert desk.offsets("printers") == {0: 100, 1: 10}
    assert "no members" in desk.ok("describe", "printers"), "it has left in order"
    assert consumed(node, "-g", "newcomers", "-e") == [], "without -o a group begins at the end"

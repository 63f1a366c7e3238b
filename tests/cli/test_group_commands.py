"""`tidelog group`: what is planned, printed, refused and done, against a node that knows groups."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import assert_three_lines
from tests.client.support.group_server import GroupServer
from tidelog.cli.group import targets as group_targets
from tidelog.cli.group.describe import shown_partitions
from tidelog.cli.group.targets import Bounds, Target, duration_ms, step
from tidelog.cli.main import main
from tidelog.cli.show.errors import BadInput
from tidelog.client import TopicPartition
from tidelog.v1 import group_admin_pb2

ORDERS_0 = TopicPartition("orders", 0)


@pytest.fixture
def server() -> Iterator[GroupServer]:
    """`billing` has no members, `reports` has one."""
    with GroupServer() as started:
        started.create("orders", 3)
        started.create("refunds", 1)
        started.fill("orders", 0, 10, 100)
        started.fill("orders", 1, 0, 50)
        started.fill("refunds", 0, 0, 7)
        started.commit("billing", "orders", 0, 90)
        started.commit("billing", "orders", 1, 50)
        started.commit("reports", "orders", 0, 100)
        started.join("reports", "m1", ("orders", 0), ("orders", 1), ("orders", 2))
        yield started


class Desk:
    """Types commands."""

    def __init__(self, server: GroupServer, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    def type(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What is printed on both streams."""
        assert main(["group", *words, "-b", self._server.address]) == code, (
            self._capsys.readouterr()
        )
        return self._capsys.readouterr()

    def ok(self, *words: str) -> list[str]:
        out, errors = self.type(*words)
        assert errors == ""
        return out.splitlines()

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.type(*words, "--json", code=code)[0])


@pytest.fixture
def desk(server: GroupServer, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(server, capsys)


def test_groups_are_listed_with_state_and_lag(server: GroupServer, desk: Desk) -> None:
    assert desk.ok("list") == [
        "Group    State   Type        Members  Lag",
        "billing  empty   reconciled        0   10",
        "reports  stable  reconciled        1    0",
    ]
    assert desk.ok("list", "--only-with-lag", "-q") == ["billing"]
    assert desk.ok("list", "--state", "stable", "-q") == ["reports"]
    assert desk.json("list")[1] == {
        "group": "reports",
        "state": "stable",
        "type": "reconciled",
        "member_count": 1,
        "lag": 0,
    }
    server.missing_coordinators = 1
    out, errors = desk.type("list", "-q", code=1)
    assert out.split() == ["billing", "reports"]
    assert errors == "1 coordinator could not be asked: their groups are missing here\n"
    server.members.clear()
    server.offsets.clear()
    out, errors = desk.type("list", code=1)
    assert out == "", "nobody knows that there are none"
    assert_three_lines(errors, why="1 coordinator could not be asked", hint="")


def test_a_group_is_described(server: GroupServer, desk: Desk) -> None:
    head, *lines = desk.ok("describe", "reports")
    assert head.split("  ") == [
        "Group: reports",
        "State: stable",
        "Type: reconciled",
        "Coordinator: 1",
        "Assignor: uniform",
        "Epoch: 3 (assigned: 3)",
        "Lag: 0",
    ]
    assert lines == [
        "  Topic   Partition  Committed  Start  End  Lag  Member",
        "  orders          0        100     10  100    0  m1",
        "  orders          1          -      0   50    -  m1",
        "  orders          2          -      0    0    -  m1",
        "  Member  Instance  Client  Address         Epoch  LastHeard  Subscribes      Owns",
        "  m1      -         till    127.0.0.1:5000      3  40 ms ago  orders,refunds  orders:0-2",
    ]
    lines = desk.ok("describe", "--only-with-lag")
    assert [line.split() for line in lines if line.startswith("  orders")] == [
        ["orders", "0", "90", "10", "100", "10", "-"],
        ["orders", "1", "-", "0", "50", "-", "m1"],
        ["orders", "2", "-", "0", "0", "-", "m1"],
    ]
    assert "  no members" in lines
    (shown,) = desk.json("describe", "billing")
    assert shown["lag"] == 10
    assert shown["partitions"][0]["committed_offset"] == 90
    assert shown["members"] == []


def test_what_a_transaction_holds_of_a_group_is_described(server: GroupServer, desk: Desk) -> None:
    server.undecided["reports", (server.topics["orders"], 1)] = group_admin_pb2.UndecidedOffset(
        transactional_id="pay",
        producer_id=7,
        producer_epoch=3,
        offset=60,
        since_ms=1_700_000_000_000,
    )
    _, _, _, _, _, *lines = desk.ok("describe", "reports")
    assert lines[:2] == [
        "  Topic   Partition  Sent  Transaction  Producer  Since",
        "  orders          1    60  pay          7@3       2023-11-14 22:13:20 UTC",
    ]
    (shown,) = desk.json("describe", "reports")
    assert [each["undecided"] for each in shown["partitions"]] == [
        None,
        {
            "transactional_id": "pay",
            "producer_id": 7,
            "producer_epoch": 3,
            "offset": 60,
            "since_ms": 1_700_000_000_000,
        },
        None,
    ]


def test_a_misspelt_group_is_told_with_the_right_name(server: GroupServer, desk: Desk) -> None:
    server.asked.clear()
    for words in (
        ("describe", "biling"),
        ("delete", "biling"),
        ("delete", "biling", "--execute"),
        ("delete-offsets", "biling", "orders"),
    ):
        _, errors = desk.type(*words, code=2)
        assert_three_lines(errors, why="no group `biling`", hint="did you mean `billing`?")
    assert set(server.asked) == {"ListGroups"}, "no coordinator is waited for"
    _, errors = desk.type("describe", "x", code=2)
    assert_three_lines(errors, why="no group `x`", hint="tidelog group list")


def test_a_group_is_asked_for_where_a_list_would_lack_it(server: GroupServer, desk: Desk) -> None:
    server.missing_coordinators = 1
    _, errors = desk.type("describe", "biling", code=2)
    assert "[GROUP_NOT_FOUND]" in errors
    out, _ = desk.type("delete", "billing", "biling", "--execute", code=1)
    assert out.splitlines()[0] == "deleted group billing"
    assert out.splitlines()[1].startswith("group biling: GROUP_NOT_FOUND: ")


def test_a_reset_is_a_dry_run_until_it_is_executed(server: GroupServer, desk: Desk) -> None:
    lines = desk.ok("reset-offsets", "billing", "--to-earliest")
    assert lines == [
        "Topic   Partition  Committed  New  Change  Lag  Note",
        "orders          0         90   10     -80   90",
        "orders          1         50    0     -50   50",
        "no offset was set; add --execute",
    ]
    key = (server.topics["orders"], 0)
    assert server.offsets["billing"][key] == 90
    assert (
        desk.ok("reset-offsets", "billing", "--to-earliest", "--execute")[-1].split()[0] == "orders"
    )
    assert server.offsets["billing"][key] == 10
    (row,) = desk.json("reset-offsets", "billing", "orders:1", "--shift-by", "7", "--execute")
    assert (row["committed_offset"], row["new_offset"], row["is_set"]) == (0, 7, True)


def test_partitions_are_named_alone_or_by_topic(server: GroupServer, desk: Desk) -> None:
    rows = desk.json("reset-offsets", "billing", "orders", "refunds:0", "--to-latest")
    assert [(row["topic"], row["partition"], row["new_offset"]) for row in rows] == [
        ("orders", 0, 100),
        ("orders", 1, 50),
        ("orders", 2, 0),
        ("refunds", 0, 7),
    ]
    for offset in (3, 0):
        words = ("fresh", "refunds", "--to-offset", str(offset), "--execute")
        desk.ok("reset-offsets", *words)
        assert server.offsets["fresh"] == {(server.topics["refunds"], 0): offset}
    assert [
        row["new_offset"] for row in desk.json("reset-offsets", "fresh", "--shift-by", "0")
    ] == [0]


def test_a_group_at_work_is_not_reset_but_its_offsets_can_be_kept(
    desk: Desk, server: GroupServer, tmp_path: Path
) -> None:
    for execute in ((), ("--execute",)):
        _, errors = desk.type("reset-offsets", "reports", "--to-latest", *execute, code=1)
        assert_three_lines(errors, why="as the test wants", hint="Stop its members first")
    copy = str(tmp_path / "offsets.csv")
    desk.ok("reset-offsets", "reports", "--to-current", "--export", copy)
    assert Path(copy).read_text("utf-8") == "orders,0,100\n"
    server.members.clear()
    desk.ok("reset-offsets", "reports", "--to-earliest", "--execute")
    desk.ok("reset-offsets", "reports", "--from-file", copy, "--execute")
    assert list(server.offsets["reports"].values()) == [100]
    out, errors = desk.type("reset-offsets", "billing", "--to-current", "--export", "-")
    assert out == "orders,0,90\norders,1,50\n"
    assert errors == "no offset was set; add --execute\n"


def test_offsets_are_forgotten_by_topic_or_partition(server: GroupServer, desk: Desk) -> None:
    assert desk.ok("delete-offsets", "billing", "orders") == [
        "would forget offset 90 of orders:0",
        "would forget offset 50 of orders:1",
        "nothing was done; add --execute",
    ]
    desk.ok("delete-offsets", "billing", "orders:0", "--execute")
    assert list(server.offsets["billing"].values()) == [50]
    (row,) = desk.json("delete-offsets", "reports", "orders:0", "--execute", code=1)
    assert (row["is_deleted"], row["error"]) == (False, "GROUP_NOT_EMPTY")
    _, errors = desk.type("delete-offsets", "billing", "refunds", code=2)
    assert_three_lines(errors, why="committed nothing there", hint="group describe billing")


def test_members_are_removed_by_name_or_all_when_that_is_meant(
    server: GroupServer, desk: Desk
) -> None:
    server.join("reports", "m2")
    assert desk.ok("remove-members", "reports", "--member", "m1") == [
        "would remove m1, which owns orders:0-2",
        "nobody was removed; add --execute",
    ]
    assert list(server.members["reports"]) == ["m1", "m2"]
    assert desk.json("remove-members", "reports", "--member", "m2", "--execute") == [
        {"member_id": "m2", "group_instance_id": "", "owns": [], "is_removed": True}
    ]
    assert list(server.members["reports"]) == ["m1"]
    assert desk.ok("remove-members", "reports", "--all", "--execute") == [
        "removed m1, which owns orders:0-2"
    ]
    assert desk.ok("remove-members", "billing", "--all") == ["group billing has no members"]


@pytest.mark.parametrize(
    ("words", "why", "hint"),
    [
        (["reports"], "does not say which", "--all"),
        (["reports", "--all", "--member", "m1"], "both some and all", "--all"),
        (["reports", "--member", "m9"], "no such member", "group describe reports"),
        (["reports", "--instance", "till"], "no such member", "group describe reports"),
        (["report", "--all"], "no group `report`", "`reports`"),
    ],
)
def test_mistakes_of_a_removal_are_three_lines(
    words: list[str], why: str, hint: str, desk: Desk
) -> None:
    _, errors = desk.type("remove-members", *words, code=2)
    assert_three_lines(errors, why=why, hint=hint)


def test_groups_are_deleted_when_that_is_meant(server: GroupServer, desk: Desk) -> None:
    assert desk.ok("delete", "billing") == [
        "would delete group billing",
        "nothing was done; add --execute",
    ]
    assert server.known() == ["billing", "reports"]
    out, _ = desk.type("delete", "billing", "reports", "--execute", code=1)
    assert out.splitlines()[0] == "deleted group billing"
    assert out.splitlines()[1].startswith("group reports: GROUP_NOT_EMPTY: ")
    assert server.known() == ["reports"]
    assert desk.json("delete", "reports", code=1) == [
        {"group": "reports", "is_deleted": False, "error": "GROUP_NOT_EMPTY"}
    ]


@pytest.mark.parametrize(
    ("words", "why", "hint"),
    [
        (("billing",), "not said where to", "--to-earliest"),
        (("billing", "--to-latest", "--shift-by", "1"), "two places", "--from-file"),
        (("billing", "--to-offset", "-1"), "`-1` is not an offset", "for example"),
        (("billing", "--to-datetime", "noon"), "neither milliseconds", "2023-11-14T22:13:20Z"),
        (("billing", "--to-datetime", "2023-11-14T22:13:20"), "time zone", "for UTC write 2023"),
        (("billing", "--by-duration", "5"), "not a duration", "90s"),
        (("billing", "orders:x", "--to-latest"), "`x` is not the number", "for example"),
        (("billing", "orders:3", "--to-latest"), "partitions 0 to 2", "topic alone"),
        (("billing", "order", "--to-latest"), "as the test wants", "topic create"),
        (("nobody", "--to-latest"), "committed nothing", "name topics"),
        (("billing", "refunds", "--shift-by", "1"), "nothing for refunds:0", "--to-earliest"),
        (("billing", "--from-file", "nowhere.csv"), "No such file", "that is there"),
        (("billing", "--to-lates"), "no option `--to-lates`", "--to-latest"),
    ],
    ids=str,
)
def test_mistakes_of_a_reset_are_three_lines(
    desk: Desk, server: GroupServer, words: tuple[str, ...], why: str, hint: str
) -> None:
    _, errors = desk.type("reset-offsets", *words, "--execute", code=2)
    assert_three_lines(errors, why=why, hint=hint)
    assert "AlterGroupOffsets" not in server.asked


@pytest.mark.parametrize(
    ("target", "bounds", "new", "note"),
    [
        (Target("earliest"), Bounds(5, 2, 9, -1), 2, ""),
        (Target("latest"), Bounds(5, 2, 9, -1), 9, ""),
        (Target("current"), Bounds(5, 2, 9, -1), 5, ""),
        (Target("current"), Bounds(-1, 2, 9, -1), 9, "nothing was committed"),
        (Target("current"), Bounds(1, 2, 9, -1), 2, "1 is below the start"),
        (Target("offset", 10), Bounds(5, 2, 9, -1), 9, "10 is beyond the end"),
        (Target("shift", -4), Bounds(5, 2, 9, -1), 2, "1 is below the start"),
        (Target("shift", 3), Bounds(5, 2, 9, -1), 8, ""),
        (Target("time", 77), Bounds(5, 2, 9, 4), 4, ""),
        (Target("time", 77), Bounds(5, 2, 9, -1), 9, "nothing is that late"),
        (Target("file"), Bounds(5, 2, 9, 0), 2, "0 is below the start"),
    ],
    ids=str,
)
def test_an_offset_stays_within_the_partition(
    target: Target, bounds: Bounds, new: int, note: str
) -> None:
    found = step(target, ORDERS_0, bounds)
    assert (found.new, found.note, found.lag) == (new, note, 9 - new)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 90_000),
        ("15m", 900_000),
        ("36h", 129_600_000),
        ("7d", 604_800_000),
        ("1d12h", 129_600_000),
        ("PT15M", 900_000),
        ("P7D", 604_800_000),
        ("P1DT2H3M4S", 93_784_000),
    ],
)
def test_durations_are_read_as_people_and_kafka_write_them(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "m", "1h2d", "-5m", "1.5h", "٣m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        duration_ms(text)


def test_a_file_of_offsets_says_which_line_is_wrong() -> None:
    text = '# kept on Monday\n"orders",0,5\n\nrefunds, 1, 6\n'
    assert group_targets.read_file(text, "f") == {
        ORDERS_0: 5,
        TopicPartition("refunds", 1): 6,
    }
    for wrong in ("orders,0", "orders,x,1", "orders,0,-1", "orders,0,1\norders,0,2"):
        with pytest.raises(BadInput) as caught:
            group_targets.read_file(wrong, "f")
        assert f"line {wrong.count(chr(10)) + 1}" in caught.value.why


def test_partitions_are_shown_in_runs() -> None:
    names = [TopicPartition("a", number) for number in (0, 1, 2, 5)]
    assert shown_partitions((*names, TopicPartition("", 3))) == "(deleted topic):3 a:0-2,5"
    assert shown_partitions(()) == "-"

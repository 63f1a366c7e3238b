"""`tidelog txn`: what an operator sees and does, against a node that knows transactions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.running import assert_three_lines
from tests.client.support.transaction_server import TransactionServer
from tidelog.cli.main import main
from tidelog.v1 import transaction_admin_pb2 as pb

BEGAN_MS = 1_700_000_000_000


@pytest.fixture
def server() -> Iterator[TransactionServer]:
    """`billing` is dead, `ledger` is prepared, `sink` is ending, `till` has nothing in progress."""
    with TransactionServer() as started:
        started.create("orders", 3)
        started.create("refunds", 1)
        started.hold(
            "billing", pb.TRANSACTION_STATE_ONGOING,
            ("orders", 0), ("orders", 1), ("orders", 2), ("refunds", 0),
            producer_id=4007, started_ms=BEGAN_MS, age_ms=728_000,
        )  # fmt: skip
        started.hold(
            "ledger", pb.TRANSACTION_STATE_PREPARED, ("orders", 0), ("refunds", 0),
            producer_id=4008, started_ms=BEGAN_MS + 1_000, age_ms=30_000, principal="bank",
        )  # fmt: skip
        started.hold(
            "sink", pb.TRANSACTION_STATE_PREPARE_COMMIT, ("orders", 0), ("orders", 1),
            producer_id=4009, started_ms=BEGAN_MS, age_ms=25, waits_for=[("orders", 1)],
        )  # fmt: skip
        started.hold("till", pb.TRANSACTION_STATE_COMPLETE_COMMIT, producer_id=4010)
        yield started


class Desk:
    """Types commands."""

    def __init__(self, server: TransactionServer, capsys: pytest.CaptureFixture[str]) -> None:
        self._server = server
        self._capsys = capsys

    def type(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What is printed on both streams."""
        assert main(["txn", *words, "-b", self._server.address]) == code, self._capsys.readouterr()
        return self._capsys.readouterr()

    def ok(self, *words: str) -> list[str]:
        out, errors = self.type(*words)
        assert errors == ""
        return out.splitlines()

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.type(*words, "--json", code=code)[0])


@pytest.fixture
def desk(server: TransactionServer, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(server, capsys)


def test_transactions_are_listed_with_state_and_age(server: TransactionServer, desk: Desk) -> None:
    assert desk.ok("list") == [
        "TransactionalId  State       Producer  Epoch     Age",
        "billing          ongoing         4007      3  12m08s",
        "ledger           prepared        4008      3   30.0s",
        "sink             committing      4009      3    25ms",
        "till             committed       4010      3       -",
    ]
    assert desk.ok("list", "--state", "prepared", "--state", "committed", "-q") == [
        "ledger",
        "till",
    ]
    assert desk.ok("list", "--older-than", "1m", "-q") == ["billing"]
    assert desk.json("list", "--state", "committed") == [
        {
            "transactional_id": "till",
            "state": "committed",
            "producer_id": 4010,
            "producer_epoch": 3,
            "age_ms": None,
        }
    ]
    server.missing_coordinators = 1
    out, errors = desk.type("list", "-q", code=1)
    assert out.split() == ["billing", "ledger", "sink", "till"]
    assert errors == "1 coordinator could not be asked: their transactions are missing here\n"
    server.held.clear()
    out, errors = desk.type("list", code=1)
    assert out == "", "nobody knows that there are none"
    assert_three_lines(errors, why="1 coordinator could not be asked", hint="")
    server.missing_coordinators = 0
    assert desk.ok("list") == ["no transactions yet"]
    assert desk.ok("list", "--older-than", "1m") == ["there are no such transactions"]
    _, errors = desk.type("list", "--older-than", "soon", code=2)
    assert_three_lines(errors, why="`soon` is not a duration", hint="90s")


def test_a_reader_that_waits_is_led_from_its_partition_to_the_transaction(desk: Desk) -> None:
    assert desk.ok("list", "--on", "orders:2") == [
        "TransactionalId  State    Producer  Epoch     Age",
        "billing          ongoing      4007      3  12m08s",
    ]
    assert desk.ok("list", "--on", "refunds", "-q") == ["billing", "ledger"]
    assert desk.ok("list", "--on", "nothing") == ["there are no such transactions"]
    assert desk.ok("describe", "billing") == [
        "TransactionalId: billing  State: ongoing  Producer: 4007  Epoch: 3  Coordinator: 1",
        "  open since 2023-11-14 22:13:20 UTC",
        "  aborted at 2023-11-14 22:14:20 UTC unless its producer ends it",
        "  to end it now: tidelog txn abort billing --execute",
        "  Topic    Partition  End",
        "  orders           0  open",
        "  orders           1  open",
        "  orders           2  open",
        "  refunds          0  open",
    ]


def test_what_is_prepared_ending_or_over_is_described_with_what_to_do(desk: Desk) -> None:
    assert desk.ok("describe", "ledger", "sink", "till") == [
        "TransactionalId: ledger  State: prepared  Producer: 4008  Epoch: 3  Coordinator: 1",
        "  open since 2023-11-14 22:13:21 UTC",
        "  prepared by bank: it stands until it is decided",
        "  to decide it: tidelog txn prepared ledger --commit --execute, or --abort",
        "  Topic    Partition  End",
        "  orders           0  open",
        "  refunds          0  open",
        "",
        "TransactionalId: sink  State: committing  Producer: 4009  Epoch: 3  Coordinator: 1",
        "  open since 2023-11-14 22:13:20 UTC",
        "  commit is decided; 1 of 2 partitions do not show it yet",
        "  Topic   Partition  End",
        "  orders          0  written",
        "  orders          1  waited for",
        "",
        "TransactionalId: till  State: committed  Producer: 4010  Epoch: 3  Coordinator: 1",
        "  nothing is in progress",
    ]
    (sink,) = desk.json("describe", "sink")
    assert sink["partitions"][1] == {"topic": "orders", "partition": 1, "is_ended": False}
    (billing,) = desk.json("describe", "billing")
    assert billing["deadline_ms"] == BEGAN_MS + 60_000


def test_a_misspelt_id_is_told_with_the_right_one(server: TransactionServer, desk: Desk) -> None:
    server.asked.clear()
    for words in (
        ("describe", "biling"),
        ("abort", "biling", "--execute"),
        ("prepared", "biling", "--commit", "--execute"),
    ):
        _, errors = desk.type(*words, code=2)
        assert_three_lines(
            errors, why="no transactional id `biling`", hint="did you mean `billing`?"
        )
    _, errors = desk.type("describe", "x", code=2)
    assert_three_lines(errors, why="no transactional id `x`", hint="tidelog txn list")
    assert set(server.asked) == {"ListTransactions"}
    server.missing_coordinators = 1
    _, errors = desk.type("describe", "x", code=2)
    assert_three_lines(errors, why="as the test wants", hint="tidelog txn list")


def test_a_transaction_is_aborted_when_that_is_said(server: TransactionServer, desk: Desk) -> None:
    assert desk.ok("abort", "billing", "till") == [
        "would abort billing (ongoing since 2023-11-14 22:13:20 UTC): orders:0-2 refunds:0",
        "till: nothing to abort: its transaction is over (committed)",
        "nothing was aborted; add --execute",
    ]
    assert server.held["billing"].state == pb.TRANSACTION_STATE_ONGOING
    assert desk.ok("abort", "billing", "--execute") == [
        "aborted billing (ongoing since 2023-11-14 22:13:20 UTC): orders:0-2 refunds:0",
    ]
    assert server.held["billing"].state == pb.TRANSACTION_STATE_COMPLETE_ABORT
    assert desk.ok("abort", "sink", "--execute") == [
        "sink: nothing to abort: its transaction is decided (committing)"
    ]
    (told,) = desk.json("abort", "ledger", "--execute")
    assert told == {
        "transactional_id": "ledger",
        "state": "prepared",
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "refunds", "partition": 0}],
        "is_aborted": True,
    }
    (told,) = desk.json("abort", "ledger")
    assert not told["is_aborted"]


def test_prepared_transactions_are_listed_and_decided(
    server: TransactionServer, desk: Desk
) -> None:
    assert desk.ok("prepared") == [
        "TransactionalId  PreparedBy  Producer  Epoch  Since                    Partitions",
        "ledger           bank            4008      3  2023-11-14 22:13:21 UTC  orders:0 refunds:0",
    ]
    assert desk.ok("prepared", "ledger", "--commit") == [
        "would commit ledger: orders:0 refunds:0",
        "nothing was decided; add --execute",
    ]
    for words, why in (
        (("prepared", "--commit", "--execute"), "named"),
        (("prepared", "ledger", "--commit", "--abort"), "both"),
        (("prepared", "ledger", "--execute"), "what to execute"),
        (("prepared", "billing", "--commit", "--execute"), "not prepared"),
    ):
        _, errors = desk.type(*words, code=2)
        assert_three_lines(errors, why=why, hint="")
    assert server.decided == []
    assert desk.ok("prepared", "ledger", "--commit", "--execute") == [
        "committed ledger: orders:0 refunds:0"
    ]
    assert server.held["ledger"].state == pb.TRANSACTION_STATE_COMPLETE_COMMIT
    assert desk.ok("prepared") == ["no transaction is prepared"]
    assert desk.json("prepared") == []


def test_what_hangs_is_found_and_ended(server: TransactionServer, desk: Desk) -> None:
    assert desk.ok("hanging") == ["nothing hangs"]
    server.remember("orders", 1, 4_010, 44, BEGAN_MS)
    server.remember("refunds", 0, 99, 3, BEGAN_MS)
    server.remember("orders", 0, 4_007, 40, BEGAN_MS)  # `billing` has it in progress
    assert desk.ok("hanging") == [
        "Topic    Partition  Producer  Epoch  StartOffset  LastRecord",
        "orders           1      4010      3           44  2023-11-14 22:13:20 UTC",
        "refunds          0        99      3            3  2023-11-14 22:13:20 UTC",
        "nothing was aborted; add --execute",
    ]
    assert desk.ok("hanging", "orders:0", "orders:2") == ["nothing hangs"]
    assert desk.ok("hanging", "orders", "--execute") == [
        "aborted the transaction of producer 4010 on orders:1"
    ]
    _, errors = desk.type("hanging", "nothing", code=2)
    assert_three_lines(errors, why="", hint="topic create")
    (told,) = desk.json("hanging", "refunds")
    assert (told["topic"], told["partition"], told["producer_id"]) == ("refunds", 0, 99)
    assert (told["is_aborted"], told["error"]) == (False, None)
    assert desk.json("hanging", "--execute")[0]["is_aborted"]
    assert desk.ok("hanging") == ["nothing hangs"]

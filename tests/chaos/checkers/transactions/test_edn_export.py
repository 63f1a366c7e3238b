"""Histories are written as Jepsen's workload for Kafka and Elle read them.

The golden files show the shape; `pytest --rewrite` writes them anew. Neither Jepsen nor Elle has
read them here: that takes Clojure.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.support.transaction_model import TransactionModel
from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import TransactionHistory, TransactionOutcome
from tidelog.chaos.checkers.transactions.edn import export_edn

GOLDEN: Final = Path(__file__).parent / "golden"
_TOKEN: Final = re.compile(r"[\[\]{}]|[^\s,\[\]{}]+")

Edn = str | int | None | list["Edn"] | dict[str, "Edn"]


def read_edn(text: str) -> Edn:
    """What an EDN reader makes of one line."""
    tokens = iter(_TOKEN.findall(text))
    return _read(next(tokens), tokens)


def _read(token: str, tokens: Iterator[str]) -> Edn:
    if token in "[{":
        items: list[Edn] = []
        for each in tokens:
            if each in "]}":
                assert each == {"[": "]", "{": "}"}[token], "brackets match"
                break
            items.append(_read(each, tokens))
        if token == "[":
            return items
        return {str(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
    if token == "nil":
        return None
    return token if token.startswith(":") else int(token)


def of_a_transaction() -> TransactionHistory:
    """A consumer that reads, processes and writes in transactions, of which one aborts."""
    script = TransactionScript()
    script.write("source", ("i", "a", 0), ("i", "b", 1))
    script.assign("p", i=0)
    script.begin("p")
    script.poll("p", i=[(0, "a")])
    script.send("p", "o", "A", 0)
    script.commit("p")
    script.begin("p")
    script.poll("p", i=[(1, "b")])
    script.send("p", "o", "B", 2)
    script.abort("p")
    script.seek("p", i=1)
    script.begin("p")
    script.poll("p", i=[(1, "b")])
    script.send("p", "o", "B again")
    script.lose("p")
    script.drain({"i": 3, "o": 6}, i=[(0, "a"), (1, "b")], o=[(0, "A")])
    return script.history()


def of_a_group() -> TransactionHistory:
    """Plain sends that overlap, and members of a group of which one takes a partition over."""
    script = TransactionScript()
    builder = script.builder
    builder.send("source", "i", "a", at_ns=script.later())
    builder.send("source", "i", "b", at_ns=script.later())
    builder.acknowledge("source", "b", offset=1, at_ns=script.later())
    builder.give_up("a", TransactionOutcome.UNKNOWN, at_ns=script.later())
    for member in ("m1", "m2"):
        builder.subscribe(member, ["i"], at_ns=script.later())
    script.poll("m1", i=[(0, "a")], rebalanced=["i"])
    script.poll("m2", i=[(1, "b")], rebalanced=["i"])
    return script.history()


EXPORTED: Final = {"transaction": of_a_transaction, "group": of_a_group}


@pytest.mark.parametrize("name", EXPORTED)
def test_a_history_is_exported_as_its_golden_file_says(
    name: str, request: pytest.FixtureRequest
) -> None:
    written = "".join(f"{line}\n" for line in export_edn(EXPORTED[name]()))
    golden = GOLDEN / f"{name}.edn"
    if request.config.getoption("--rewrite"):
        golden.write_text(written, encoding="utf-8")
    assert written == golden.read_text(encoding="utf-8")


@pytest.mark.slow
def test_each_process_does_one_thing_at_a_time_and_none_after_an_unknown_outcome() -> None:
    for seed in range(20):
        busy: dict[Edn, Edn] = {}
        ended: set[Edn] = set()
        before = 0
        for index, line in enumerate(export_edn(TransactionModel(seed).run())):
            operation = read_edn(line)
            assert isinstance(operation, dict)
            process, at_ns = operation[":process"], operation[":time"]
            assert operation[":index"] == index
            assert isinstance(at_ns, int)
            assert at_ns >= before
            before = at_ns
            assert process not in ended, "a process ends with an unknown outcome"
            if operation[":type"] == ":invoke":
                assert process not in busy
                busy[process] = operation[":f"]
            else:
                assert busy.pop(process) == operation[":f"]
            if operation[":type"] == ":info":
                ended.add(process)
        assert not busy, "what was called ended, if only with an unknown outcome"


def test_every_record_is_exported_with_its_key_offset_and_value() -> None:
    history = TransactionModel(3).run()
    sent = read = 0
    for line in export_edn(history):
        operation = read_edn(line)
        assert isinstance(operation, dict)
        if operation[":type"] == ":invoke" or operation[":f"] == ":assign":
            continue
        micros = operation[":value"]
        assert isinstance(micros, list)
        for micro in micros:
            assert isinstance(micro, list | int)
            if isinstance(micro, int):
                continue
            if micro[0] == ":send":
                assert isinstance(micro[2], list)
                assert len(micro[2]) == 2
                sent += 1
            else:
                assert isinstance(micro[1], dict)
                read += sum(len(each) for each in micro[1].values() if isinstance(each, list))
    assert sent == sum(len(list(each.sends())) for each in history.transactions)
    assert read == sum(
        len(records)
        for transaction in history.transactions
        for poll in transaction.polls()
        for _, records in poll.records
    )

"""Transactions under live faults: the parts of the judge, and one bounded slice of both cases.

`make chaos CASE=bank` and `CASE=pipeline` run more.
"""

from pathlib import Path

import pytest

from tidelog.chaos.checkers.transactions import Pipeline, TransactionHistory
from tidelog.chaos.live.cases import CASES
from tidelog.chaos.live.shared.case import Orders
from tidelog.chaos.live.transactions.journal import (
    Began,
    ClientJournal,
    Deciding,
    Ended,
    Entry,
    GivenUp,
    Placed,
    Polled,
    Sending,
    Stored,
    read_client_journal,
)
from tidelog.chaos.live.transactions.mover import amount_of, value_of
from tidelog.chaos.live.transactions.stage import INITIAL, fold, output_of, read_output
from tidelog.chaos.live.transactions.verdict import (
    counts_of,
    history_of,
    judge_bank,
    judge_pipeline,
    without_one_record,
)

FIRST, SECOND = value_of("mover0-0", 0, 0, 5), value_of("mover0-0", 0, 1, -5)
TRANSFER: list[Entry] = [
    Began(1),
    Sending(2, "bank-0", FIRST),
    Sending(3, "bank-1", SECOND),
    Stored(4, FIRST, 0),
    Stored(5, SECOND, 0),
    Deciding(6, is_commit=True),
    Ended(7, "ok"),
]
READ: list[Entry] = [
    Placed(1, {"bank-0": 0, "bank-1": 0}),
    Polled(10, 11, {"bank-0": [(0, FIRST)], "bank-1": [(0, SECOND)]}, {"bank-0": 2, "bank-1": 2}),
    Polled(
        20,
        21,
        {"bank-0": [(0, FIRST)], "bank-1": [(0, SECOND)]},
        {"bank-0": 2, "bank-1": 2},
        is_final=True,
    ),
]


def written(directory: Path, name: str, entries: list[Entry]) -> Path:
    """A client's journal."""
    file = directory / f"{name}.client"
    journal = ClientJournal(file)
    for entry in entries:
        journal.write(entry)
    return file


def history(directory: Path, **journals: list[Entry]) -> TransactionHistory:
    return history_of({name: written(directory, name, said) for name, said in journals.items()})


def test_a_journal_is_read_as_it_was_written_up_to_a_line_that_was_torn(tmp_path: Path) -> None:
    file = written(tmp_path, "mover", TRANSFER)
    with file.open("ab") as lines:
        lines.write(b'{"type":"ended","at_')
    assert list(read_client_journal(file)) == TRANSFER


def test_a_transfer_that_was_read_whole_is_sound(tmp_path: Path) -> None:
    made = history(tmp_path, mover=TRANSFER, auditor=READ[:2], drain=[READ[0], READ[2]])
    assert judge_bank(made) == []
    counts = counts_of(made)
    assert (counts.committed, counts.aborted, counts.unknown) == (1, 0, 0)
    assert (counts.reads, counts.records_read) == (2, 4)


def test_a_leg_that_is_not_there_is_found(tmp_path: Path) -> None:
    made = history(tmp_path, mover=TRANSFER, drain=[READ[0], READ[2]])
    assert judge_bank(made) == []
    assert judge_bank(without_one_record(made, "bank-"))


def test_a_transfer_that_was_taken_back_must_not_be_read(tmp_path: Path) -> None:
    taken_back = [*TRANSFER[:5], Deciding(6, is_commit=False), Ended(7, "fail")]
    found = judge_bank(history(tmp_path, mover=taken_back, auditor=READ[:2]))
    assert "aborted_read" in {each.check for each in found}


def test_one_that_was_killed_before_it_knew_may_end_either_way(tmp_path: Path) -> None:
    torn_off = TRANSFER[:6]
    assert judge_bank(history(tmp_path, mover=torn_off, auditor=READ[:2])) == []
    empty = [READ[0], Polled(20, 21, {}, {"bank-0": 2, "bank-1": 2}, is_final=True)]
    assert judge_bank(history(tmp_path, mover=torn_off, drain=empty)) == []


def test_values_say_what_they_move() -> None:
    assert amount_of(value_of("mover0-1", 7, 2, -31)) == -31
    assert amount_of("no amount") is None


def test_a_pipeline_is_judged_by_the_fold_of_its_input(tmp_path: Path) -> None:
    """Values of the output are nobody's sends: only what the drain has read of them counts."""
    states = [fold(INITIAL, "a"), fold(fold(INITIAL, "a"), "b")]
    outputs = [(1, output_of("in-0", 0, states[0])), (3, output_of("in-0", 1, states[1]))]
    assert read_output(outputs[1][1]).state == states[1]
    feeder: list[Entry] = [
        Sending(1, "in-0", "a"),
        Sending(2, "in-0", "b"),
        Sending(3, "in-0", "c"),
        Stored(4, "a", 0),
        Stored(5, "b", 1),
        GivenUp(6, "c"),
    ]
    read = Polled(20, 21, {"in-0": [(0, "a"), (1, "b")], "out-0": outputs}, {}, is_final=True)
    made = history(tmp_path, feeder=feeder, drain=[Placed(10, {"in-0": 0, "out-0": 0}), read])
    stage = Pipeline(
        inputs=("in-0",), outputs=("out-0",), read_output=read_output, initial=INITIAL, fold=fold
    )
    assert judge_pipeline(made, [stage]) == []
    assert judge_pipeline(without_one_record(made, "out-"), [stage])


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.parametrize("name", ["bank", "pipeline"])
def test_a_slice_of_each_case_is_sound(name: str, tmp_path: Path) -> None:
    """One broker is struck, and perhaps a client."""
    assert CASES[name].run(Orders(directory=tmp_path / "run", seconds=0.5)) == 0

"""The output of a pipeline is the fold of its input, exactly once."""

import pytest

from tests.chaos.support.transaction_script import TransactionScript
from tidelog.chaos.checkers.transactions import Derived, Pipeline, check_pipeline, drained_logs
from tidelog.chaos.sim.base.seeds import SeededRandom

Log = list[tuple[int, str]]

INPUT: Log = [(0, "3"), (2, "4"), (3, "5")]
OUTPUT: Log = [(0, "in-0 0 3"), (2, "in-0 2 7"), (4, "in-0 3 12")]


def read_output(value: str) -> Derived:
    source, offset, state = value.split()
    return Derived(source, int(offset), state)


def pipeline(*, is_complete: bool = True) -> Pipeline:
    return Pipeline(
        inputs=("in-0",),
        outputs=("out-0", "out-1"),
        read_output=read_output,
        initial="0",
        fold=lambda state, value: str(int(state) + int(value)),
        is_complete=is_complete,
    )


def found(output: Log, *, is_complete: bool = True) -> list[str]:
    logs = {"in-0": INPUT, "out-0": output}
    return [each.check for each in check_pipeline(logs, pipeline(is_complete=is_complete))]


def test_the_fold_of_the_input_is_right() -> None:
    assert found(OUTPUT) == []


@pytest.mark.parametrize(
    ("check", "output"),
    [
        ("pipeline_missing", [OUTPUT[0], OUTPUT[2]]),
        ("pipeline_repeated", [*OUTPUT, (6, "in-0 3 12")]),
        ("pipeline_reordered", [OUTPUT[0], (2, "in-0 3 12"), (4, "in-0 2 7")]),
        ("pipeline_wrong", [OUTPUT[0], (2, "in-0 2 4"), OUTPUT[2]]),
        ("pipeline_invented", [*OUTPUT, (6, "in-0 9 12")]),
        ("pipeline_invented", [*OUTPUT, (6, "in-7 0 3")]),
    ],
)
def test_a_wrong_output_is_found_under_its_name(check: str, output: Log) -> None:
    assert found(output) == [check]


def test_a_tail_may_be_missing_where_the_pipeline_had_no_time() -> None:
    assert found(OUTPUT[:1], is_complete=False) == []
    assert found(OUTPUT[:1]) == ["pipeline_missing", "pipeline_missing"]


def test_a_hole_is_missing_whatever_time_there_was() -> None:
    assert found([OUTPUT[0], OUTPUT[2]], is_complete=False) == ["pipeline_missing"]


def test_outputs_of_several_partitions_are_ordered_in_each_only() -> None:
    logs = {"in-0": INPUT, "out-0": [OUTPUT[0], OUTPUT[2]], "out-1": [OUTPUT[1]]}
    assert check_pipeline(logs, pipeline()) == []


def test_the_logs_are_those_of_the_final_drain() -> None:
    script = TransactionScript()
    script.write("p1", ("x", "a", 0), ("x", "b", 1))
    script.poll("reader", x=[(0, "a")])
    script.drain({"x": 3}, x=[(0, "a"), (1, "b")])
    assert drained_logs(script.history()) == {"x": [(0, "a"), (1, "b")]}


def run(seed: int, *, is_atomic: bool) -> dict[str, Log]:
    """A pipeline that is killed now and then, and goes on from its committed offset and state.

    With transactions output, offset and state are committed together; without them a crash between
    the two commits leaves the one without the other.
    """
    random = SeededRandom(seed, "pipeline")
    inputs: Log = [(3 * number, str(number)) for number in range(30)]
    output: Log = []
    at, state = 0, 0
    while at < len(inputs):
        offset, value = inputs[at]
        answer = (len(output), f"in-0 {offset} {state + int(value)}")
        if not is_atomic and random.chance(0.1):
            if random.chance(0.5):
                output.append(answer)
            else:
                at, state = at + 1, state + int(value)
            continue
        if is_atomic and random.chance(0.3):
            continue
        output.append(answer)
        at, state = at + 1, state + int(value)
    return {"in-0": inputs, "out-0": output}


@pytest.mark.slow
def test_a_pipeline_with_transactions_is_never_accused_and_one_without_is_found() -> None:
    accused = 0
    for seed in range(200):
        assert check_pipeline(run(seed, is_atomic=True), pipeline()) == []
        accused += bool(check_pipeline(run(seed, is_atomic=False), pipeline()))
    assert accused > 150, "most runs of 30 records meet at least one crash"

"""The checker of histories: good ones pass, and each kind of bad one fails."""

import pytest

from tidelog.chaos.checkers.history.history import Outcome
from tidelog.chaos.checkers.history.linearizability import (
    Operation,
    Value,
    Verdict,
    check_history,
    check_key,
)
from tidelog.chaos.sim import SeededRandom

UNKNOWN = Outcome.INDETERMINATE


def operation(
    name: str,
    argument: Value,
    began: int,
    ended: int,
    result: Value = None,
    *,
    expected: Value = None,
    outcome: Outcome = Outcome.ACKNOWLEDGED,
    key: str = "k",
) -> Operation:
    return Operation(
        client=f"c{began}",
        key=key,
        name=name,
        argument=argument,
        expected=expected,
        began_ns=began,
        ended_ns=ended,
        outcome=outcome,
        result=result,
    )


def verdict(*operations: Operation) -> Verdict:
    return check_key("k", list(operations)).verdict


def test_one_after_another_is_linearizable() -> None:
    assert (
        verdict(
            operation("read", None, 0, 1, None),
            operation("write", "a", 2, 3),
            operation("read", None, 4, 5, "a"),
            operation("compare_and_set", "b", 6, 7, "a", expected="a"),
            operation("read", None, 8, 9, "b"),
        )
        is Verdict.LINEARIZABLE
    )


def test_concurrent_operations_may_take_effect_in_either_order() -> None:
    for seen in ("a", "b"):
        assert (
            verdict(
                operation("write", "a", 0, 10),
                operation("write", "b", 0, 10),
                operation("read", None, 11, 12, seen),
            )
            is Verdict.LINEARIZABLE
        )


def test_a_stale_read_is_a_violation() -> None:
    judgement = check_key(
        "k",
        [
            operation("write", "a", 0, 1),
            operation("write", "b", 2, 3),
            operation("read", None, 4, 5, "a"),
        ],
    )
    assert judgement.verdict is Verdict.VIOLATED
    assert "read" in str(judgement)


def test_reads_that_go_back_are_a_violation() -> None:
    assert (
        verdict(
            operation("write", "a", 0, 1),
            operation("write", "b", 2, 20),
            operation("read", None, 4, 5, "b"),
            operation("read", None, 6, 7, "a"),
        )
        is Verdict.VIOLATED
    )


def test_a_lost_update_is_a_violation() -> None:
    assert (
        verdict(
            operation("write", "a", 0, 1),
            operation("compare_and_set", "b", 2, 5, "a", expected="a"),
            operation("compare_and_set", "c", 2, 5, "a", expected="a"),
        )
        is Verdict.VIOLATED
    )


def test_a_lost_append_is_a_violation() -> None:
    assert (
        verdict(
            operation("append", "x", 0, 1, ("x",)),
            operation("append", "y", 2, 3, ("y",)),
        )
        is Verdict.VIOLATED
    )


def test_a_name_created_twice_is_a_violation() -> None:
    twice = [operation("create", "u1", 0, 1, 1), operation("create", "u2", 2, 3, 1)]
    assert verdict(*twice) is Verdict.VIOLATED
    once = [operation("create", "u1", 0, 1, 1), operation("create", "u2", 2, 3, 0)]
    assert verdict(*once) is Verdict.LINEARIZABLE


def test_an_acknowledged_write_that_nobody_finds_is_a_violation() -> None:
    assert (
        verdict(operation("write", "a", 0, 1), operation("read", None, 2, 3, None))
        is Verdict.VIOLATED
    )


@pytest.mark.parametrize("seen", ["a", "b"])
def test_an_operation_of_unknown_outcome_took_effect_or_did_not(seen: str) -> None:
    assert (
        verdict(
            operation("write", "a", 0, 1),
            operation("write", "b", 2, 3, outcome=UNKNOWN),
            operation("read", None, 4, 5, seen),
        )
        is Verdict.LINEARIZABLE
    )


def test_an_operation_of_unknown_outcome_may_take_effect_late_but_only_once() -> None:
    write = operation("write", "b", 2, 3, outcome=UNKNOWN)
    late = [
        operation("write", "a", 0, 1),
        write,
        operation("read", None, 50, 51, "a"),
        operation("read", None, 60, 61, "b"),
    ]
    assert verdict(*late) is Verdict.LINEARIZABLE
    again = [*late, operation("write", "c", 70, 71), operation("read", None, 80, 81, "b")]
    assert verdict(*again) is Verdict.VIOLATED


def test_it_cannot_take_effect_before_it_was_called() -> None:
    assert (
        verdict(
            operation("read", None, 0, 1, "b"),
            operation("write", "b", 2, 3, outcome=UNKNOWN),
        )
        is Verdict.VIOLATED
    )


def test_a_refused_operation_never_took_effect() -> None:
    refused = operation("write", "b", 0, 1, outcome=Outcome.FAILED)
    [judgement] = check_history([refused, operation("read", None, 2, 3, "b")])
    assert judgement.verdict is Verdict.VIOLATED


def test_keys_are_judged_one_by_one() -> None:
    judgements = check_history(
        [
            operation("write", "a", 0, 1, key="good"),
            operation("read", None, 2, 3, "a", key="good"),
            operation("read", None, 2, 3, "a", key="bad"),
        ]
    )
    assert [(j.key, j.verdict) for j in judgements] == [
        ("good", Verdict.LINEARIZABLE),
        ("bad", Verdict.VIOLATED),
    ]


def test_a_search_that_costs_too_much_is_no_verdict() -> None:
    operations = [operation("write", f"v{n}", 0, 100) for n in range(14)]
    operations.append(operation("read", None, 101, 102, "nothing"))
    judgement = check_key("k", operations, configurations_max=500)
    assert judgement.verdict is Verdict.TOO_COSTLY


def random_history(random: SeededRandom) -> list[Operation]:
    """Of a true register: each operation takes effect at an instant inside its time."""
    drawn = []
    for number in range(40):
        began = random.below(200)
        ended = began + 1 + random.below(20)
        drawn.append((random.between(began, ended), number, began, ended))
    state: Value = None
    history = []
    for _, number, began, ended in sorted(drawn):
        name = ("read", "write", "compare_and_set")[random.below(3)]
        found, expected = state, f"v{random.below(40)}"
        if name == "write" or (name == "compare_and_set" and state == expected):
            state = f"v{number}"
        result = None if name == "write" else found
        history.append(operation(name, f"v{number}", began, ended, result, expected=expected))
    return history


def test_histories_of_a_true_register_pass_and_one_changed_read_mostly_fails() -> None:
    failed = 0
    for seed in range(30):
        history = random_history(SeededRandom(seed, "history"))
        assert verdict(*history) is Verdict.LINEARIZABLE
        reads = [o for o in history if o.name == "read"]
        changed = [operation("read", None, o.began_ns, o.ended_ns, "v999") for o in reads[:1]]
        failed += verdict(*[o for o in history if o not in reads[:1]], *changed) is Verdict.VIOLATED
    assert failed == 30

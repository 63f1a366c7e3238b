"""The same machine as in the model, driven by weights: most steps move something on.

A longer run: TIDELOG_STORMS=5000 python -m pytest -s -m slow tests/broker/replication
"""

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.broker.replication.test_sessions_model import PARTITIONS, SessionMachine

STORMS = int(os.environ.get("TIDELOG_STORMS", "60"))
STEPS = 250


def storm(seed: int) -> Counter[str]:
    """One run to its end; what was seen in it."""
    chance = random.Random(seed)
    machine = SessionMachine()

    def number() -> int:
        return chance.randrange(PARTITIONS)

    def lose(many: str, lose_one: Callable[[], None]) -> None:
        if len(getattr(machine.world, many)) > 1:
            lose_one()

    steps: list[tuple[int, Callable[[], object]]] = [
        (10, lambda: machine.write(number(), chance.choice([1, 80, 700]), chance.randint(1, 3))),
        (4, lambda: machine.commit(number(), chance.random())),
        (1, lambda: machine.trim(number(), chance.random())),
        (1, lambda: machine.another_leader(number(), chance.random(), chance.randint(0, 3))),
        (1, lambda: machine.a_former_leader(number(), chance.randint(0, 10), chance.randint(0, 2))),
        (3, lambda: machine.learn_of_the_leader(number())),
        (10, machine.ask),
        (10, lambda: machine.world.requests and machine.deliver_request()),
        (10, machine.answer),
        (10, lambda: machine.world.answers and machine.deliver_answer()),
        (10, lambda: machine.do_one(number())),
        (5, lambda: machine.flush(number())),
        (2, lambda: machine.wait(chance.randint(1, 300))),
        (1, lambda: machine.break_stream(chance.randint(0, 3), chance.randint(0, 3))),
        (1, lambda: lose("requests", machine.lose_a_request)),
        (1, lambda: lose("answers", machine.lose_an_answer)),
    ]
    weights = [weight for weight, _ in steps]
    for _ in range(STEPS):
        ((_, step),) = chance.choices(steps, weights)
        step()
        machine.what_counts_is_a_prefix_of_the_leaders_log()
        machine.what_is_committed_is_the_same()
        machine.no_copy_has_a_hole()
        machine.what_is_on_its_way_is_bounded()
    machine.teardown()
    return machine.world.seen


@pytest.mark.slow
def test_a_copy_is_a_prefix_after_every_storm() -> None:
    seen: Counter[str] = Counter()
    SessionMachine.seen.clear()
    for seed in range(STORMS):
        try:
            seen += storm(seed)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    seen += SessionMachine.seen
    print(f"\n{dict(seen)}")
    wanted = ["AppendCopies", "CommitTo", "TruncateTail", "RestartLog", "TrimHead"]
    wanted += ["former leader", "break", "lost request", "lost answer"]
    assert all(seen[each] for each in wanted), f"the storms never came to {wanted}: {dict(seen)}"

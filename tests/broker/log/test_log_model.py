"""A data directory against a list of records, and a dictionary where it is compacted.

A longer run: TIDELOG_MODEL_EXAMPLES=2000 python -m pytest -s -m slow
tests/broker/log/test_log_model.py
"""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.broker.support.log_model_machine import LogMachine

EXAMPLES = int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "60"))
STEPS = 50


@pytest.mark.slow
def test_a_directory_behaves_as_a_list_and_a_dictionary_through_crashes() -> None:
    LogMachine.steps.clear()
    try:
        run_state_machine_as_test(
            LogMachine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    finally:
        counted = LogMachine.steps
        print(f"\n{counted['examples']} examples, {counted['steps']} steps")
        for name, count in sorted(counted.items()):
            if name.startswith("rule "):
                print(f"    {name.removeprefix('rule '):20}{count:>9,}")

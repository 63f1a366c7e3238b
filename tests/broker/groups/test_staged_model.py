"""Staged offsets under whatever failovers, markers and compactions do; see `staged_model`."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.broker.groups.support.staged_model import StagedModel

TestStagedModel = pytest.mark.slow(StagedModel.TestCase)
TestStagedModel.settings = settings(
    max_examples=int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "60")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

"""The core under whatever members, failovers and lost answers do to it; see `group_model`."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.broker.groups.support.group_model import GroupModel

TestGroupModel = pytest.mark.slow(GroupModel.TestCase)
TestGroupModel.settings = settings(
    max_examples=int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "60")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

"""The core under whatever producers, failovers and lost answers do to it."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.broker.transactions.support.transaction_model import TransactionModel

TestTransactionModel = pytest.mark.slow(TransactionModel.TestCase)
TestTransactionModel.settings = settings(
    max_examples=int(os.environ.get("TIDELOG_MODEL_EXAMPLES", "60")),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

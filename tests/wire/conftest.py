"""Fixtures of the codec's tests: the switch of the C decoder.

Owns that TIDELOG_NO_ACCELERATOR=1 runs every test here with Python alone.
"""

import os
from collections.abc import Iterator

import pytest

from tidelog.wire.batch import NO_ACCELERATOR, use_accelerator


@pytest.fixture(scope="session", autouse=True)
def accelerator_switch() -> Iterator[None]:
    """Off when the environment says so."""
    use_accelerator(os.environ.get(NO_ACCELERATOR) != "1")
    yield
    use_accelerator(True)

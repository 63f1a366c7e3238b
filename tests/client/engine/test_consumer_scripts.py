"""The consumer's core, told as scripts: inputs and the exact effects."""

from pathlib import Path

import pytest

from tests.client.support.consumer_world import ConsumerScript
from tests.support.golden import Golden, scripts_beside


@pytest.mark.parametrize(
    "path", scripts_beside(__file__, "consumer_scripts"), ids=lambda path: path.stem
)
def test_the_consumer_does_what_the_script_says(path: Path, golden: Golden) -> None:
    golden(path, ConsumerScript)

"""Golden scripts of staged publish: what is published, in which order, and what is refused."""

from pathlib import Path

import pytest

from tests.broker.staged.support import PublishScript
from tests.support.golden import Golden, scripts_beside


@pytest.mark.parametrize("path", scripts_beside(__file__), ids=lambda path: path.stem)
def test_what_is_published_and_what_is_refused_is_what_the_script_says(
    path: Path, golden: Golden
) -> None:
    golden(path, PublishScript)

"""What a test says of a command that does not end."""

import pytest

from tests.cli.running import run_cli

pytestmark = pytest.mark.slow


def test_a_command_that_does_not_end_fails_with_the_stacks_of_its_threads() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"did not end within[\s\S]*most recent call"):
        run_cli("produce", "t", "-X", "bootstrap_timeout_ms=60000", stdin=b"x\n", timeout_s=5.0)

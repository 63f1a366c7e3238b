"""The Toxiproxy server of tests that break connections on purpose, found as live runs find it.

Under CI=true a missing server fails the run; elsewhere the tests are skipped with one line.
"""

import os

from tidelog.chaos.live.processes.toxiproxy import (
    ToxiproxyMissingError,
    find_server,
    running_server,
)

__all__ = ["ToxiproxyMissingError", "find_server", "is_required", "running_server"]


def is_required() -> bool:
    """Whether the absence of the server is a failure."""
    return os.environ.get("CI", "").lower() == "true"

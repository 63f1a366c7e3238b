"""Limits of this process, for as long as a test runs."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def open_files_limit(soft: int) -> Iterator[int]:
    """So many files may be open; gives the hard limit, which stays."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

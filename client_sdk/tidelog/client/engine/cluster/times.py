"""When a client that waits tells the log: alike for readers, writers, members and single calls."""

from typing import Final

from tidelog.client.engine.cluster.backoff import NS_PER_MS

FIRST_NS: Final = 5_000 * NS_PER_MS
"""Of trouble, before it is told."""
AGAIN_NS: Final = 30_000 * NS_PER_MS
LOOK_NS: Final = 500 * NS_PER_MS
"""How often it is looked whether there is something to tell."""

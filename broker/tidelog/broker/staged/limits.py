"""What staged publish admits, each bound with its reason. Pure."""

from typing import Final

TOKEN_BYTES_MAX: Final = 256
"""As the contract promises to whoever stores tokens."""

TOKENS_MAX: Final = 10_000
"""Of one publish: so many writers of one batch, and so many footers to look at."""

TARGETS_MAX: Final = 2_000
"""Partitions of one stage and of one publish: as many as a transaction may touch."""

PUBLISH_BYTES_MAX: Final = 512 * 1024 * 1024
"""Published at once by default: readers of committed records wait for all of it."""

RANGES_PER_REQUEST_MAX: Final = 5_000
"""Told to a leader in one call: below the bounds of the message."""

SINK_ID_BYTES_MAX: Final = 249
WRITE_ID_BYTES_MAX: Final = 249

SEQUENCES: Final = 2**31
"""How many sequences there are, before they begin again at 0."""

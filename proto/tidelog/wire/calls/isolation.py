"""Which records a reader may see. Pure."""

from enum import IntEnum


class IsolationLevel(IntEnum):
    """Numbers as in the contract, whose 0 counts as the first of them."""

    READ_UNCOMMITTED = 1
    """All below the high watermark, whatever becomes of their transactions."""
    READ_COMMITTED = 2
    """Those of committed transactions and those outside transactions, below the last stable
    offset."""

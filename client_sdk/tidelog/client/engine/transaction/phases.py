"""The phases of a transactional producer: one at a time, each with what only it knows."""

from enum import Enum

import msgspec

from tidelog.wire.errors import TidelogError


class Decision(Enum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


class Identity(msgspec.Struct, frozen=True):
    """Who writes: good for one transaction."""

    producer_id: int
    producer_epoch: int


class New(msgspec.Struct, frozen=True):
    """No identity yet."""


class Starting(msgspec.Struct, frozen=True):
    """An identity is asked for."""

    expected: Identity | None
    """The last one; None: any older producer of this transactional id is fenced."""
    is_reset: bool = False
    """It is asked for by an abort."""


class Ready(msgspec.Struct, frozen=True):
    """No transaction is in progress."""


class Open(msgspec.Struct, frozen=True):
    """The user adds records and offsets."""


class Ending(msgspec.Struct, frozen=True):
    """A decision is on its way; before a commit all records are sent and answered."""

    decision: Decision
    is_flushed: bool = False
    is_sent: bool = False
    """From now on it may have taken effect, whatever is heard of it."""
    asked: Decision | None = None
    """What is asked for, if that differs: the contrary was decided before, and asking for it once
    more brings the identity to go on with."""
    is_prepared: bool = False
    """It turned out that the transaction had been prepared: it is decided as its token would."""


class Preparing(msgspec.Struct, frozen=True):
    """The first half of a commit in two phases is on its way."""

    is_flushed: bool = False
    is_sent: bool = False


class Prepared(msgspec.Struct, frozen=True):
    """Nothing more is added; whoever has the token decides."""


class MustAbort(msgspec.Struct, frozen=True):
    """Something failed: nothing of the transaction may be committed."""

    error: TidelogError
    is_over: bool = False
    """The coordinator has aborted it already; a new identity is all that is needed."""


class Undecided(msgspec.Struct, frozen=True):
    """An end was sent, and the user's time was over before it was answered."""

    decision: Decision
    error: TidelogError


class Fenced(msgspec.Struct, frozen=True):
    """Another producer took the transactional id over: this one is done for good."""

    error: TidelogError


Phase = (
    New | Starting | Ready | Open | Ending | Preparing | Prepared | MustAbort | Undecided | Fenced
)

"""What goes into a transactional producer's core and what comes out of it.

Owns both closed unions. The user's calls carry a number; each is answered by one `CallDone` with
that number, at the latest at its deadline.
"""

import msgspec

from tidelog.client.engine.group.messages import OffsetToCommit
from tidelog.client.engine.transaction.phases import Decision, Identity
from tidelog.client.errors import TransactionError
from tidelog.wire.errors import TidelogError


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf offsets are sent, as its group knows it."""

    group: str
    member_id: str = ""
    member_epoch: int = -1


class Coordinated(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator is sought for: a transactional id, or a group."""

    name: str
    is_group: bool = False


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared transaction: enough to decide it from any process."""

    transactional_id: str
    identity: Identity


# From the user's side.


class InitializeWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Take the transactional id over: the first call of a producer's life."""

    call: int
    deadline_ns: int


class BeginWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Records and offsets from here on belong together."""

    call: int
    deadline_ns: int


class OffsetsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Add these offsets to the transaction."""

    call: int
    member: Member
    offsets: tuple[OffsetToCommit, ...]
    deadline_ns: int


class EndWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Commit or abort."""

    call: int
    decision: Decision
    deadline_ns: int


class PrepareWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Make it ready to be decided by whoever has the token."""

    call: int
    deadline_ns: int


class DecideWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Decide a prepared transaction, this producer's or another one's."""

    call: int
    token: Token
    decision: Decision
    deadline_ns: int


Call = InitializeWanted | BeginWanted | OffsetsWanted | EndWanted | PrepareWanted | DecideWanted


class CallWithdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The user waits for this call no longer; it ends as if its time were over."""

    call: int


class RecordsAdded(msgspec.Struct, frozen=True):
    """Records were appended in the open transaction."""


class RecordsFailed(msgspec.Struct, frozen=True):
    """Records of the open transaction were refused for good."""

    error: TidelogError


class Flushed(msgspec.Struct, frozen=True):
    """Every record that was appended before `Flush` has its outcome; failures were told before."""


# From brokers.


class CoordinatorFound(msgspec.Struct, frozen=True, kw_only=True):
    """Where a coordinator is."""

    of: Coordinated
    address: str


class CoordinatorFailed(msgspec.Struct, frozen=True, kw_only=True):
    """There is none at the moment, or nobody could be asked."""

    of: Coordinated
    error: TidelogError


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request was answered, or could not be; with an identity if it was to bring one."""

    number: int
    identity: Identity | None = None
    error: TidelogError | None = None
    is_doubtful: bool = False
    """With an error: it was sent, and may have been carried out all the same."""
    batches_in_flight_max: int = 0
    """Of one partition, as the coordinator allows; 0: it does not say."""


TransactionMessage = (
    InitializeWanted
    | BeginWanted
    | OffsetsWanted
    | EndWanted
    | PrepareWanted
    | DecideWanted
    | CallWithdrawn
    | RecordsAdded
    | RecordsFailed
    | Flushed
    | CoordinatorFound
    | CoordinatorFailed
    | Answered
)


class FindCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Ask any broker; answer with CoordinatorFound or CoordinatorFailed."""

    of: Coordinated


class SendInitialize(msgspec.Struct, frozen=True, kw_only=True):
    """Take the transactional id over."""

    number: int
    address: str
    expected: Identity | None


class SendOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """To the coordinator of the group."""

    number: int
    address: str
    identity: Identity
    member: Member
    offsets: tuple[OffsetToCommit, ...]


class SendEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Decide the transaction of this identity."""

    number: int
    address: str
    identity: Identity
    decision: Decision


class SendPrepare(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more is added to the transaction of this identity."""

    number: int
    address: str
    identity: Identity


class SendDecide(msgspec.Struct, frozen=True, kw_only=True):
    """Decide what a token stands for."""

    number: int
    address: str
    token: Token
    decision: Decision


class UseIdentity(msgspec.Struct, frozen=True):
    """Records appended from now on carry it, with sequences from 0."""

    identity: Identity


class Flush(msgspec.Struct, frozen=True):
    """Send what was appended; answer with Flushed."""


class DropRecords(msgspec.Struct, frozen=True):
    """Fail what has no outcome yet: the transaction is aborted."""

    error: TidelogError


class CallDone(msgspec.Struct, frozen=True, kw_only=True):
    """The user's call returns, or raises."""

    call: int
    error: TransactionError | None = None
    token: Token | None = None


class TellCallWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The user's call waits for long: a line for the log."""

    text: str


CoordinatorRequest = SendInitialize | SendOffsets | SendEnd | SendPrepare | SendDecide
DriverEffect = FindCoordinator | CoordinatorRequest | CallDone | TellCallWaits
"""What a driver performs."""
TransactionEffect = DriverEffect | UseIdentity | Flush | DropRecords
"""What is for the producer's other core as well (`producing`)."""

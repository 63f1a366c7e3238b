"""What clients did and saw, written down by themselves.

Times are any monotonic nanoseconds that all clients share. Every value is sent at most once and by
one client, so that a value names its send. Nothing in here may know how a broker works.
"""

import enum

import msgspec

PartitionKey = str
"""Names one partition, such as `orders-3`."""


class Outcome(enum.Enum):
    """What a client knows of its send."""

    ACKNOWLEDGED = "acknowledged"
    INDETERMINATE = "indeterminate"
    """It may have taken effect, or may still take effect."""
    FAILED = "failed"
    """It was refused and never takes effect."""


class Acks(enum.Enum):
    """Which acknowledgement a send asked for."""

    ALL = "all"
    LEADER = "1"
    """Answered by the leader alone: may be lost, and its offset given again, when that dies."""
    NONE = "0"
    """Never answered: ACKNOWLEDGED says that it left, without an offset."""


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One batch on its way into a partition, with all its attempts."""

    client: str
    partition: PartitionKey
    values: tuple[str, ...]
    began_ns: int
    ended_ns: int
    outcome: Outcome
    base_offset: int = -1
    """Only of an acknowledged send; -1 there too, if it is stored and nobody knows any more where:
    the leader's log begins behind it."""
    stream: str = ""
    """Sends of one stream are appended in the order they were sent; empty: a single call."""
    stream_position: int = 0
    acks: Acks = Acks.ALL
    is_idempotent: bool = True
    """Sent at most once, or with sequences: it must not be there twice."""

    @property
    def is_committed(self) -> bool:
        """Whether it was promised to survive."""
        return self.outcome is Outcome.ACKNOWLEDGED and self.acks is Acks.ALL


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """One answer with records of a partition."""

    reader: str
    """A reading session: its polls follow each other without a seek."""
    partition: PartitionKey
    began_ns: int
    ended_ns: int
    position: int
    """The first offset that was asked for; -1: the client does not say."""
    records: tuple[tuple[int, str], ...]
    """Offset and value, from `position` on."""
    high_watermark: int
    """Of the answer; -1: the client does not say."""
    is_final: bool = False
    """Part of the drain after everything had ended and healed."""


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker answered to a client that came with nothing but an offset to read from."""

    client: str
    partition: PartitionKey
    broker: str
    method: str
    began_ns: int
    ended_ns: int
    offset: int
    is_refused_for_good: bool
    """The answer was OFFSET_OUT_OF_RANGE: do not ask again, begin elsewhere."""
    high_watermark: int = -1
    """Of the answer; -1: the answer does not say."""
    is_leader: bool = False
    """Whether the broker led the partition from the question to the answer."""


class Anomaly(msgspec.Struct, frozen=True):
    """Something that must not be."""

    check: str
    partition: PartitionKey
    detail: str

    def __str__(self) -> str:
        return f"{self.check} in {self.partition}: {self.detail}"


class Excuse(enum.Enum):
    """Why a partition is not held to everything."""

    DELETED = "deleted"
    """Its topic was deleted: nobody drains it. What was read of it is judged all the same."""
    LOST = "lost"
    """More copies were destroyed than its settings can do without: what was committed before may
    be gone, and its offsets given again. Nothing may come from nowhere even so."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What an excused loss may have taken, and when."""

    kept: int
    """Records below this offset are there all the same."""
    began_ns: int
    ended_ns: int | None = None
    """When all replicas went on from one log; None: that was not seen."""


class History:
    """All sends, polls and inquiries of a run, in the order in which they ended."""

    def __init__(self) -> None:
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.inquiries: list[Inquiry] = []
        self.damage: list[str] = []
        """Answers whose bytes contradict a checksum: a broker must never give one."""
        self.excuses: dict[PartitionKey, Excuse] = {}
        self.losses: dict[PartitionKey, Loss] = {}
        """What is known of a loss that is excused; without it nothing of the partition is kept."""
        self.trims: dict[PartitionKey, int] = {}
        """The highest offset that a trim or retention may have made the first one kept."""
        self.heals_ns: list[int] = []
        """When everything was whole again; recovery is counted from the last."""
        self._begun: dict[str, Send] = {}

    def begin(self, send: Send) -> None:
        """A send is about to leave; if nothing more is heard of it, it is indeterminate."""
        assert send.outcome is Outcome.INDETERMINATE, "a send begins with an unknown outcome"
        self._begun[send.values[0]] = send

    def end(self, send: Send) -> None:
        """A send that was begun came to an end."""
        assert send.values[0] in self._begun, "a send ends once, after it began"
        del self._begun[send.values[0]]
        self.sends.append(send)

    def settle(self, now_ns: int) -> None:
        """The run is over: what never ended is indeterminate."""
        for send in self._begun.values():
            self.sends.append(msgspec.structs.replace(send, ended_ns=now_ns))
        self._begun.clear()

    def partitions(self) -> list[PartitionKey]:
        """Every partition that was touched, in order of first touch."""
        touched: dict[PartitionKey, None] = {}
        for send in self.sends:
            touched[send.partition] = None
        for poll in self.polls:
            touched[poll.partition] = None
        return list(touched)

    def of(self, partition: PartitionKey) -> "History":
        """The part of one partition."""
        part = History()
        part.sends = [send for send in self.sends if send.partition == partition]
        part.polls = [poll for poll in self.polls if poll.partition == partition]
        return part

    def excuse(self, partition: PartitionKey, excuse: Excuse) -> None:
        """From now on the partition is not held to everything; LOST is never taken back."""
        if self.excuses.get(partition) is not Excuse.LOST:
            self.excuses[partition] = excuse

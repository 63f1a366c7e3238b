"""One assigned partition of a consumer: where it stands and what is on its way.

Owns the positions of one partition. Two are told apart: `position` is the next offset that the user
gets, `fetch_offset` the next that is asked for; between them lies what was prefetched. `epochs`
tells of which leader epoch the record before each of them was: by it a broker sees that its log was
cut behind the reader's back.
"""

from tidelog.client.engine.fetch.epochs import NO_EPOCH, ReadEpochs
from tidelog.client.engine.fetch.messages import Fetched
from tidelog.client.types.records import TopicPartition
from tidelog.wire.calls.offsets import OffsetSpec
from tidelog.wire.errors import TidelogError


class PartitionState:
    """log_start_offset ≤ position ≤ fetch_offset, all of one generation."""

    __slots__ = (
        "broker_id",
        "epochs",
        "error",
        "failure",
        "failures",
        "fetch_offset",
        "generation",
        "group_topic_id",
        "handed_from",
        "high_watermark",
        "is_draining",
        "is_held",
        "is_paused",
        "is_querying",
        "last_stable_offset",
        "log_start_offset",
        "must_move",
        "position",
        "preferred_id",
        "replica_until_ns",
        "reset",
        "retry_at_ns",
        "sent_epoch",
        "session_epoch",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, reset: OffsetSpec | None) -> None:
        self.topic_partition = topic_partition
        self.topic_id = b""
        """Of the topic that the position is of; empty until it is known."""
        self.group_topic_id = b""
        """As its group has told it, until metadata say the same; empty: nothing is waited for."""
        self.generation = 0
        """Grows with each change of position that is not reading on."""
        self.position: int | None = None
        self.fetch_offset: int | None = None
        self.handed_from: int | None = None
        """Where begins what the user was given since a transaction last counted; None: nothing."""
        self.epochs = ReadEpochs()
        self.reset = reset
        """Where to begin while there is no position; None: the user must say."""
        self.broker_id: int | None = None
        """Whose stream reads it."""
        self.session_epoch = 0
        """Of the request that told that stream where to read: older answers are stale."""
        self.sent_epoch = NO_EPOCH
        """The leader epoch that went with that request."""
        self.preferred_id: int | None = None
        """A replica that the leader found nearer; None: the leader is read."""
        self.replica_until_ns = 0
        """When that choice ends and the leader is asked again; 0: never."""
        self.must_move = False
        """The position is to be named anew, though its broker stays."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.is_paused = False
        self.is_querying = False
        self.is_draining = False
        """Nothing more is asked for until the user has all that came before."""
        self.is_held = False
        """Its group has not told yet where to begin, or takes it away: nothing is delivered."""
        self.failures = 0
        self.failure: TidelogError | None = None
        """The last refusal that is tried again."""
        self.retry_at_ns = 0
        self.error: TidelogError | None = None
        """Raised by the next poll, once."""

    def __repr__(self) -> str:
        place = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
        return f"<{place} position={self.position} fetch_offset={self.fetch_offset}>"

    @property
    def is_drained(self) -> bool:
        """Whether the user has everything that came."""
        return self.position == self.fetch_offset

    @property
    def is_silent(self) -> bool:
        """Whether nothing is delivered, for the user or for its group."""
        return self.is_paused or self.is_held

    @property
    def is_leader_wanted(self) -> bool:
        """Whether the leader is to serve although another replica may be nearer."""
        return bool(self.replica_until_ns) and self.preferred_id is None

    def move_to(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """A seek or a reset, behind a record of this epoch: everything fetched before is void."""
        assert offset >= 0, f"an offset is not negative: {offset}"
        self._forget()
        read_to = offset - 1 if self.fetch_offset is None else self.fetch_offset
        self.position = self.fetch_offset = offset
        self.handed_from = None
        self.epochs.move(offset, epoch, read_to)

    def step_back(self, offset: int) -> None:
        """Read again from here what was read before: the epochs up to here stay known."""
        assert self.fetch_offset is not None, f"{self!r} steps back without a position"
        assert 0 <= offset <= self.fetch_offset, f"{self!r} cannot step back to {offset}"
        self._forget()
        self.position = self.fetch_offset = offset
        if self.handed_from is not None:
            self.handed_from = min(self.handed_from, offset)
        self.epochs.cut(offset)

    def need_reset(self, reset: OffsetSpec | None) -> None:
        """There is no position: it has to be asked for."""
        self._forget()
        self.position = self.fetch_offset = self.handed_from = None
        self.epochs.begin(0, NO_EPOCH)
        self.reset = reset

    def give_up_query(self) -> None:
        """Its answer does not count any more."""
        assert self.is_querying, f"{self!r} gives up a question that nobody asked"
        assert self.fetch_offset is None, f"{self!r} asks for a position that it has"
        self.generation += 1
        self.is_querying = False

    def read_by(self, broker_id: int, session_epoch: int, leader_epoch: int) -> None:
        """A stream is about to be told to read it."""
        assert self.fetch_offset is not None, f"{self!r} is read without a position"
        self.broker_id = broker_id
        self.session_epoch = session_epoch
        self.sent_epoch = leader_epoch
        self.must_move = False

    def leave_stream(self) -> None:
        """The stream is gone or was told to stop: read on elsewhere, from the same place."""
        self.broker_id = None

    def read_to(self, next_offset: int) -> None:
        """Batches up to `next_offset` came; their epochs are noted."""
        assert self.fetch_offset is not None, f"{self!r} was read without a position"
        assert next_offset > self.fetch_offset, f"{self!r} cannot go back to {next_offset}"
        self.fetch_offset = next_offset
        self.failures = 0

    def keeps(self, fetched: Fetched) -> bool:
        """Whether these bytes are still what the user gets next, or behind it."""
        if self.fetch_offset is None or fetched.generation != self.generation:
            return False
        return fetched.next_offset <= self.fetch_offset

    def let_go(self, offset: int) -> None:
        """What was prefetched from here on makes room for others: asked for again, later."""
        assert self.broker_id is None, f"{self!r} lets go of what its stream builds upon"
        assert self.fetch_offset is not None, f"{self!r} lets go without a position"
        assert offset <= self.fetch_offset, f"{self!r} cannot let go from {offset} on"
        self.fetch_offset = offset
        self.epochs.cut(offset)
        self.is_draining = True

    def hand_over(self, next_offset: int) -> None:
        """The user has everything below `next_offset`."""
        assert self.fetch_offset is not None, f"{self!r} was handed over without a position"
        assert next_offset <= self.fetch_offset, f"{self!r} hands over what was not fetched"
        if self.handed_from is None and next_offset != self.position:
            self.handed_from = self.position
        self.position = next_offset

    def _forget(self) -> None:
        self.generation += 1
        self.broker_id = None
        self.is_querying = False
        self.is_draining = False
        self.is_held = False
        self.error = None
        self.failures = 0
        self.retry_at_ns = 0

"""The observer's end of the metadata stream: keeps the image of a node that is no member.

Owns the bookmark: the next entry wanted and the term of the last one applied. It must never apply
an entry twice, out of order or after a gap, nor show a part of a group or of a snapshot. The image
lives in memory only: after a restart it comes as a snapshot. No stop of a record's walk passes
here; every stop reads the image.

Theory of operation. One task holds a stream to one voter. It leaves the voter when the stream
breaks, when the voter is silent for SILENCE_MS, or knows no leader for so long (it may be cut off
from the others), and goes on at the next one from the bookmark. What the voter may send is bounded
by credit, given back as it is applied.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from tidelog.metadata_quorum.quorum.port import StateMachine
from tidelog.metadata_quorum.raft.types import (
    NO_INDEX,
    NO_TERM,
    NodeId,
    Snapshot,
    SnapshotId,
)
from tidelog.metadata_quorum.stream import wire as stream_messages
from tidelog.metadata_quorum.stream.messages import (
    CommittedEntries,
    Heartbeat,
    ObserveBegin,
    ObserveProgress,
    SnapshotPiece,
    VoterMessage,
)
from tidelog.metadata_quorum.stream.quorum_view import Addresses, Leader
from tidelog.metadata_quorum.stream.server import METHOD
from tidelog.ports import Clock, Network, Stream
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

SILENCE_MS: Final = 3_000
"""A voter sends a heartbeat each second."""
CREDIT_BYTES: Final = 4 * 1024 * 1024
RETRY_MS: Final = 100
SNAPSHOT_BYTES_MAX: Final = 1024 * 1024 * 1024
_FINAL: Final = (ErrorCode.WRONG_CLUSTER, ErrorCode.UNSUPPORTED_VERSION)
"""Going to another voter would not help: the node stops."""

DecodeSnapshot = Callable[[bytes], tuple[Snapshot, Sequence[bytes]]]


class MetadataObserver:
    """`run()` follows the stream until cancelled, or until another voter would not help."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        machine: StateMachine,
        addresses: Addresses,
        *,
        cluster_id: str,
        node_id: NodeId,
        decode_snapshot: DecodeSnapshot,
    ) -> None:
        self._network = network
        self._clock = clock
        self._machine = machine
        self._addresses = addresses
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._decode_snapshot = decode_snapshot
        self._applied_index = NO_INDEX
        self._applied_term = NO_TERM
        self._commit_index = NO_INDEX
        self._leader: NodeId | None = None
        self._leader_term = NO_TERM
        self._snapshot_id: SnapshotId | None = None
        self._snapshot_data = bytearray()
        self.voter_address = ""
        """The voter that is followed now; empty: none."""
        self._refusals: dict[str, TidelogError] = {}
        """Why each address was left, since a stream brought something."""

    @property
    def applied_index(self) -> LogIndex:
        """The last entry applied."""
        return self._applied_index

    @property
    def trouble(self) -> TidelogError | None:
        """Why each address that was tried was left; None while a stream brings something.

        Of all, since an address that is no voter's answers as well, and hides what voters say.
        """
        reasons = "; ".join(
            f"{address}: [{error.code.name}] {error.happened}"
            for address, error in self._refusals.items()
        )
        if not reasons:
            return None
        return TidelogError(
            ErrorCode.UNAVAILABLE,
            tried="follow the metadata",
            happened=f"no voter serves it: {reasons}",
        )

    @property
    def commit_index(self) -> LogIndex:
        """The highest that a voter told of."""
        return self._commit_index

    def leader(self) -> Leader | None:
        """The leader of the highest term that a voter told of."""
        if self._leader is None:
            return None
        address = self._addresses.of(self._leader)
        if address is None:
            return None
        return Leader(node_id=self._leader, term=self._leader_term, address=address)

    async def run(self) -> None:
        """Follow one voter after the other."""
        place = 0
        while True:
            addresses = self._addresses.all()
            if addresses:
                self.voter_address = addresses[place % len(addresses)]
                place += 1
                try:
                    await self._follow(self.voter_address)
                except TidelogError as error:
                    self._note(addresses, error)
                    if error.code in _FINAL:
                        raise
                self.voter_address = ""
            await self._clock.sleep(RETRY_MS)

    def _note(self, addresses: Sequence[str], error: TidelogError) -> None:
        """Keep what the address said last, and nothing of those that are tried no longer."""
        self._refusals[self.voter_address] = error
        for gone in self._refusals.keys() - set(addresses):
            del self._refusals[gone]

    async def _follow(self, address: str) -> None:
        """Until the stream ends in order, breaks, or is not worth keeping."""
        self._drop_snapshot()
        stream = self._network.stream(address, METHOD)
        try:
            await stream.send(
                stream_messages.encode_observer_message(
                    ObserveBegin(
                        cluster_id=self._cluster_id,
                        node_id=self._node_id,
                        next_index=LogIndex(self._applied_index + 1),
                        last_applied_term=self._applied_term,
                        credit_bytes=CREDIT_BYTES,
                    )
                )
            )
            await self._receive_all(stream)
        finally:
            stream.cancel()

    async def _receive_all(self, stream: Stream) -> None:
        leader_seen_ns = self._clock.monotonic_ns()
        while True:
            message = await self._receive(stream)
            if message is None:
                return
            self._refusals.clear()
            credit_bytes = self._take_in(message)
            if credit_bytes:
                progress = ObserveProgress(
                    applied_index=self._applied_index, credit_bytes=credit_bytes
                )
                await stream.send(stream_messages.encode_observer_message(progress))
            now_ns = self._clock.monotonic_ns()
            if not isinstance(message, Heartbeat) or message.leader is not None:
                leader_seen_ns = now_ns
            elif now_ns - leader_seen_ns >= SILENCE_MS * 1_000_000:
                raise _left("the voter knows no leader")

    async def _receive(self, stream: Stream) -> VoterMessage | None:
        try:
            async with asyncio.timeout(SILENCE_MS / 1000):
                data = await stream.receive()
        except TimeoutError:
            raise _left(f"the voter was silent for {SILENCE_MS} ms") from None
        return None if data is None else stream_messages.decode_voter_message(data)

    def _take_in(self, message: VoterMessage) -> int:
        """Apply it; the bytes of credit that it used."""
        match message:
            case CommittedEntries():
                self._apply(message)
                return sum(len(entry.data) for entry in message.entries) or 1
            case SnapshotPiece():
                self._collect(message)
                return len(message.data)
            case Heartbeat():
                self._on_heartbeat(message)
                return 0
            case _:
                assert_never(message)

    def _on_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._commit_index = max(self._commit_index, heartbeat.commit_index)
        is_newer = heartbeat.term > self._leader_term
        if is_newer or (heartbeat.term == self._leader_term and heartbeat.leader is not None):
            self._leader_term = heartbeat.term
            self._leader = heartbeat.leader
        if heartbeat.members is not None:
            self._addresses.learn(heartbeat.members)
        if heartbeat.error is not None:
            raise heartbeat.error

    def _apply(self, message: CommittedEntries) -> None:
        self._check(self._snapshot_id is None, "entries came between the pieces of a snapshot")
        term = self._applied_term
        for place, entry in enumerate(message.entries):
            expected = self._applied_index + 1 + place
            self._check(
                entry.index == expected, f"entry {entry.index} came where {expected} was due"
            )
            self._check(entry.term >= term, f"the term falls from {term} to {entry.term}")
            term = entry.term
        last = message.entries[-1]
        self._check(last.index <= message.commit_index, f"entry {last.index} is not committed")
        self._machine.apply(message.entries)
        self._applied_index = last.index
        self._applied_term = last.term
        self._commit_index = max(self._commit_index, message.commit_index)

    def _collect(self, piece: SnapshotPiece) -> None:
        """Keep a piece; with the last one the whole image is replaced."""
        if self._snapshot_id is None:
            self._check(piece.id.end_index > self._applied_index + 1, "a snapshot leads back")
            self._snapshot_id = piece.id
        self._check(piece.id == self._snapshot_id, "two snapshots are mixed")
        self._check(
            piece.position == len(self._snapshot_data), "a piece of the snapshot is missing"
        )
        if piece.total_bytes > SNAPSHOT_BYTES_MAX:
            raise _left(f"a snapshot of {piece.total_bytes} bytes is offered")
        self._snapshot_data += piece.data
        if len(self._snapshot_data) < piece.total_bytes:
            return
        snapshot, state = self._decode_snapshot(bytes(self._snapshot_data))
        self._check(snapshot.id == piece.id, f"{snapshot.id} came as {piece.id}")
        self._drop_snapshot()
        self._machine.restore(snapshot, state)
        self._applied_index = snapshot.last_index
        self._applied_term = snapshot.id.term
        self._commit_index = max(self._commit_index, snapshot.last_index)

    def _check(self, is_right: bool, happened: str) -> None:
        """What a voter sent is its matter: if it cannot be, another voter is asked."""
        if not is_right:
            raise TidelogError(
                ErrorCode.INVALID_ARGUMENT,
                tried=f"follow the metadata at {self.voter_address}",
                happened=happened,
            )

    def _drop_snapshot(self) -> None:
        self._snapshot_id = None
        self._snapshot_data = bytearray()


def _left(happened: str) -> TidelogError:
    return TidelogError(ErrorCode.UNAVAILABLE, tried="follow the metadata", happened=happened)

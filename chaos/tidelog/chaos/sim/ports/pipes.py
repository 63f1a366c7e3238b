"""What an exchange is made of: pipes that carry frames, and the ends that send and receive.

A pipe keeps the order of its frames and delivers each at most once. When the exchange breaks, each
pipe still delivers some prefix of what is in it, and each side notices at a time of its own. It
must never tell one side what became of a frame at the other.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from tidelog.chaos.sim.base.loop import SimulatedLoop
from tidelog.chaos.sim.base.seeds import SeededRandom
from tidelog.chaos.sim.ports.clock import set_done
from tidelog.ports.network import MESSAGE_BYTES_MAX
from tidelog.wire.errors import ErrorCode, TidelogError

WINDOW_BYTES: Final = 256 * 1024
"""What a pipe and the inbox behind it hold before a sender has to wait."""


class FrameKind(enum.Enum):
    """What travels."""

    OPEN = "open"
    MESSAGE = "message"
    END = "end"
    ERROR = "error"


class Frame(msgspec.Struct, frozen=True):
    """One thing that travels through a pipe."""

    kind: FrameKind
    message: bytes = b""
    error: TidelogError | None = None
    on_let_go: Callable[[], None] | None = None
    """Of a message that is held: called when it comes out at last."""


class Wire(Protocol):
    """What a pipe needs of the network."""

    loop: SimulatedLoop
    random: SeededRandom

    def delay_ns(self, source: str, target: str) -> int:
        """How long the next frame travels."""
        ...

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets through at the moment."""
        ...

    async def maybe_yield(self) -> None:
        """Let others run first, or not."""
        ...


class Pipe:
    """One direction of an exchange."""

    def __init__(
        self, wire: Wire, source: str, target: str, deliver: Callable[[Frame], None]
    ) -> None:
        self._wire = wire
        self.source = source
        self.target = target
        self._deliver = deliver
        self._queue: deque[Frame] = deque()
        self._due = 0
        self._last_arrival_ns = 0
        self._left: int | None = None
        self._on_lost: Callable[[], None] | None = None
        self.unreceived_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self._held_ns = 0
        self._on_let_go: Callable[[], None] | None = None
        self._held = 0

    @property
    def is_holding(self) -> bool:
        """A message that is held is on its way: it arrives, whoever gives it up."""
        return self._held > 0

    def hold_next(self, held_ns: int, on_let_go: Callable[[], None]) -> None:
        """The next message, and what comes behind it, arrives so much later."""
        self._held_ns, self._on_let_go = held_ns, on_let_go

    @property
    def is_lost(self) -> bool:
        """Nothing comes out any more."""
        return self._left == 0

    @property
    def queued(self) -> int:
        """Frames on their way."""
        return len(self._queue)

    def put(self, frame: Frame) -> None:
        """Send a frame on its way; into a broken pipe it vanishes."""
        if self._left is not None:
            return
        wire = self._wire
        arrival_ns = wire.loop.now_ns + wire.delay_ns(self.source, self.target)
        if self._held_ns and frame.kind is FrameKind.MESSAGE:
            arrival_ns += self._held_ns
            frame = Frame(frame.kind, frame.message, on_let_go=self._on_let_go)
            self._held_ns, self._held = 0, self._held + 1
        self._last_arrival_ns = max(self._last_arrival_ns, arrival_ns)
        self._queue.append(frame)
        self.unreceived_bytes += len(frame.message)
        wire.loop.call_at_ns(self._last_arrival_ns, self._on_due, context=wire.loop.world_context)

    def break_off(self, keep: int, on_lost: Callable[[], None]) -> None:
        """Deliver `keep` frames more, then nothing; `on_lost` is called after the last."""
        if self._left is not None:
            return
        assert keep <= len(self._queue), "a break keeps a prefix of what is on its way"
        self._left = keep
        self._on_lost = on_lost
        if keep == 0:
            self._lose()

    def flow(self) -> None:
        """Deliver what has come due, unless the link is cut."""
        while self._due and self._queue and not self.is_lost:
            if self._wire.is_cut(self.source, self.target):
                return
            self._due -= 1
            frame = self._queue.popleft()
            if self._left is not None:
                self._left -= 1
            if frame.on_let_go is not None:
                self._held -= 1
                frame.on_let_go()
            self._deliver(frame)
            if self._left == 0:
                self._lose()

    def release(self, frame: Frame) -> None:
        """The receiver took a frame out of its inbox: there is room again."""
        self.unreceived_bytes -= len(frame.message)
        self._wake()

    async def wait_room(self, length_bytes: int) -> None:
        """Until a message of this size fits, or nothing matters any more."""
        while (
            self._left is None
            and self.unreceived_bytes
            and self.unreceived_bytes + length_bytes > WINDOW_BYTES
        ):
            self._room = asyncio.Future(loop=self._wire.loop)
            await self._room

    def _on_due(self) -> None:
        self._due += 1
        self.flow()

    def _lose(self) -> None:
        self._queue.clear()
        self._wake()
        if self._on_lost is not None:
            on_lost, self._on_lost = self._on_lost, None
            on_lost()

    def _wake(self) -> None:
        if self._room is not None:
            room, self._room = self._room, None
            set_done(room)


class End:
    """One side's hold on an exchange; fulfils the Stream port."""

    def __init__(self, wire: Wire, tried: str, *, is_caller: bool) -> None:
        self._wire = wire
        self._tried = tried
        self._is_caller = is_caller
        self.out: Pipe | None = None
        self.into: Pipe | None = None
        self._inbox: deque[Frame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: TidelogError | None = None
        self._has_ended = False
        """The other side ended its sending in order."""
        self._has_ended_sending = False
        self.on_give_up: Callable[[], None] | None = None
        self.on_final: Callable[[], None] | None = None

    def connect(self, out: Pipe, into: Pipe) -> None:
        """Lay the pipes."""
        self.out, self.into = out, into

    @property
    def is_over(self) -> bool:
        """This side will learn nothing more."""
        return self._failure is not None or self._has_ended

    async def send(self, message: bytes) -> None:
        """Queue a message; waits while the other side is slow."""
        assert self.out is not None, "an end is connected before it is used"
        if len(message) > MESSAGE_BYTES_MAX:
            raise too_large(self._tried, len(message))
        await self._wire.maybe_yield()
        self._check_sending()
        await self.out.wait_room(len(message))
        self._check_sending()
        self.out.put(Frame(FrameKind.MESSAGE, message))

    async def receive(self) -> bytes | None:
        """The next message; None after the other side has ended its sending in order."""
        assert self.into is not None, "an end is connected before it is used"
        while not self._inbox:
            if self._failure is not None:
                raise copy_error(self._failure)
            if self._has_ended:
                return None
            self._waiter = asyncio.Future(loop=self._wire.loop)
            await self._waiter
        frame = self._inbox.popleft()
        self.into.release(frame)
        return frame.message

    async def end_sending(self) -> None:
        """No more messages from the caller."""
        assert self._is_caller, "a handler returns to end its stream"
        assert self.out is not None, "an end is connected before it is used"
        if not self._has_ended_sending:
            self._has_ended_sending = True
            self.out.put(Frame(FrameKind.END))

    def cancel(self) -> None:
        """Break the stream at once."""
        if self._is_caller and self._failure is None:
            self._inbox.clear()
        self.fail(closed(self._tried))
        if self.on_give_up is not None:
            self.on_give_up()

    def take(self, frame: Frame) -> None:
        """A frame came out of the pipe."""
        if self._failure is not None or self._has_ended:
            return
        if frame.kind is FrameKind.MESSAGE:
            self._inbox.append(frame)
            self._wake()
        elif frame.kind is FrameKind.END:
            self._has_ended = True
            self._finish()
        elif frame.kind is FrameKind.ERROR:
            assert frame.error is not None, "an error frame carries an error"
            self.fail(frame.error)

    def end_by_break(self) -> None:
        """At a handler: the other side is gone, which looks like its end until the cancellation."""
        assert not self._is_caller, "a caller is told of a break"
        if not self.is_over:
            self._has_ended = True
            self._finish()

    def fail(self, error: TidelogError) -> None:
        """Whoever sends or receives here from now on gets this; what has arrived is read first."""
        if self._failure is None and not (self._has_ended and self._is_caller):
            self._failure = error
            self._finish()

    def _finish(self) -> None:
        self._wake()
        if self.out is not None:
            self.out._wake()
        if self.on_final is not None:
            self.on_final()

    def _check_sending(self) -> None:
        if self._failure is not None:
            raise copy_error(self._failure)
        if self._is_caller and self._has_ended:
            raise closed(self._tried)

    def _wake(self) -> None:
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            set_done(waiter)


def closed(tried: str) -> TidelogError:
    """The call or stream was ended from this side."""
    return TidelogError(
        ErrorCode.CLOSED, tried=tried, happened="it was closed here while it was in progress"
    )


def too_large(tried: str, length_bytes: int) -> TidelogError:
    """A message over the limit, refused before it is sent."""
    return TidelogError(
        ErrorCode.BATCH_TOO_LARGE,
        tried=tried,
        happened=f"a message of {length_bytes} bytes is over the limit of {MESSAGE_BYTES_MAX}",
    )


def as_answer(error: TidelogError) -> TidelogError:
    """As it travels: code and texts, whatever class it was at the peer."""
    return TidelogError(error.code, tried=error.tried, happened=error.happened, hint=error.hint)


def copy_error(error: TidelogError) -> TidelogError:
    """An equal error with a traceback of its own."""
    rebuild, arguments = error.__reduce__()[:2]
    assert callable(rebuild), "errors know how to be rebuilt"
    assert isinstance(arguments, tuple), "errors know what to be rebuilt from"
    copy = rebuild(*arguments)
    assert isinstance(copy, TidelogError), "a rebuilt error is one of ours"
    if hasattr(error, "death_hint"):
        copy.death_hint = error.death_hint  # type: ignore[attr-defined]
    return copy

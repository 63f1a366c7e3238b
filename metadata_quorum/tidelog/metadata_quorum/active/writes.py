"""A write on its way through the active controller: decided, proposed, committed, answered.

Owns the values that the controller and its term share. A write holds a function, not records: what
it writes depends on the image at its turn.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from tidelog.metadata.image.image import Image
from tidelog.metadata.records.entries import MetadataRecord
from tidelog.metadata_quorum.controller.decision import Decision
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import LogIndex

AnswerT = TypeVar("AnswerT")
Decide = Callable[[Image], Decision[AnswerT]]
"""Pure: run once, at the write's turn, against everything that was decided before it."""

_UNKNOWN: Final = (ErrorCode.INDETERMINATE, ErrorCode.DEADLINE_EXCEEDED)


class Written(msgspec.Struct, Generic[AnswerT], frozen=True, kw_only=True):
    """The outcome of a write."""

    answer: AnswerT
    index: LogIndex
    """The image of this version, or a later one, shows what the answer says."""
    warnings: tuple[str, ...] = ()


class Pending(Protocol):
    """A write as the queue sees it, whatever its answer is."""

    @property
    def tried(self) -> str:
        """What its caller wanted."""
        ...

    @property
    def has_records(self) -> bool:
        """Whether anything is to be committed for it."""
        ...

    def decide(self, image: Image) -> tuple[MetadataRecord, ...]:
        """Decide; empty: it was refused, or nothing changes."""
        ...

    def succeed(self, index: LogIndex) -> None:
        """What was decided stands."""
        ...

    def fail(self, code: ErrorCode, happened: str, hint: str = "") -> None:
        """It does not, or nobody knows."""
        ...


class Write(Generic[AnswerT]):
    """One call of `ActiveController.write`; `done` is what its caller waits for."""

    def __init__(self, decide: Decide[AnswerT], *, tried: str) -> None:
        self._tried = tried
        self.done: asyncio.Future[Written[AnswerT]] = asyncio.get_running_loop().create_future()
        self._decide = decide
        self._decision: Decision[AnswerT] | None = None
        self._refusal: TidelogError | None = None

    @property
    def tried(self) -> str:
        """See `Pending`."""
        return self._tried

    @property
    def has_records(self) -> bool:
        """See `Pending`."""
        return self._decision is not None and bool(self._decision.records)

    def decide(self, image: Image) -> tuple[MetadataRecord, ...]:
        """See `Pending`."""
        assert self._decision is None, f"`{self.tried}` is decided once"
        assert self._refusal is None, f"`{self.tried}` is decided once"
        try:
            decision = self._decide(image)
        except TidelogError as error:
            self._refusal = error
            return ()
        self._decision = decision
        return decision.records

    def succeed(self, index: LogIndex) -> None:
        """Its records are committed and applied here, or it needed none and this node leads."""
        if self.done.done():
            return
        if self._refusal is not None:
            self.done.set_exception(self._refusal)
            return
        assert self._decision is not None, f"`{self.tried}` is answered before it was decided"
        self.done.set_result(
            Written(answer=self._decision.answer, index=index, warnings=self._decision.warnings)
        )

    def fail(self, code: ErrorCode, happened: str, hint: str = "") -> None:
        """Its caller learns why; each caller has an error of its own."""
        if not self.done.done():
            self.done.set_exception(
                TidelogError(code, tried=self.tried, happened=happened, hint=hint)
            )


class Batch:
    """Writes that share the fate of the same entries, in the order in which they were decided."""

    def __init__(self, writes: tuple[Pending, ...], *, entries: tuple[bytes, ...]) -> None:
        assert writes, "a batch holds at least one write"
        self.writes = writes
        self.entries = entries
        self.settled = asyncio.Event()
        self.failure: TidelogError | None = None
        self._is_void = False
        """Not all of it was proposed: none of it takes effect."""
        self._waiting = len(entries)
        self._last_index = LogIndex(0)

    def on_committed(self, index: LogIndex) -> None:
        """One of its entries is committed and applied here."""
        self._last_index = max(self._last_index, index)
        self._on_entry()

    def on_failed(self, error: TidelogError) -> None:
        """One of its entries is not, or nobody knows. A refused one makes the whole group void."""
        is_better = error.code is ErrorCode.NOT_CONTROLLER and not self._is_void
        if self.failure is None or is_better:
            self.failure = error
        self._on_entry()

    def void(self, count: int) -> None:
        """Its last entries are never proposed: what became of those before them is the same."""
        assert 0 < count <= self._waiting, "what was not proposed has no outcome yet"
        if self.failure is None or self.failure.code in _UNKNOWN:
            self._is_void = True
            self.failure = TidelogError(
                ErrorCode.UNAVAILABLE,
                tried="write metadata",
                happened="the leadership was lost, or an entry had no outcome in time, before all "
                "of it was proposed",
            )
        for _ in range(count):
            self._on_entry()

    def confirm(self, index: LogIndex) -> None:
        """A batch without entries: this node led when it was decided."""
        assert not self.entries, "entries are confirmed by their commit"
        self._last_index = index
        self._settle()

    def fail_all(self, error: TidelogError) -> None:
        """Whatever its entries may still become."""
        if not self.settled.is_set():
            self.failure = error
            self._settle()

    def _on_entry(self) -> None:
        assert self._waiting > 0, "each entry has one outcome"
        self._waiting -= 1
        if self._waiting == 0 and not self.settled.is_set():
            self._settle()

    def _settle(self) -> None:
        assert not self.settled.is_set(), "a batch has one outcome"
        self.settled.set()
        for write in self.writes:
            if self.failure is None:
                write.succeed(self._last_index)
            elif write.has_records:
                write.fail(self.failure.code, self.failure.happened, self.failure.hint)
            else:
                _fail_unchanged(write, self.failure)


def _fail_unchanged(write: Pending, failure: TidelogError) -> None:
    """Nothing was to be written, so nothing is uncertain but the answer."""
    is_lost = failure.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.INDETERMINATE)
    code = ErrorCode.NOT_CONTROLLER if is_lost else ErrorCode.UNAVAILABLE
    write.fail(code, f"nothing was changed, and the answer is not certain: {failure.happened}")

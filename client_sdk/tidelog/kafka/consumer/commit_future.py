"""What commit_async() returns: kafka-python's future, told by the client's callback.

Owns its state. It is told and asked on the thread that polls, so that nothing here waits.
"""

from collections.abc import Callable
from typing import Any, Self

from tidelog.kafka.errors import KafkaError
from tidelog.kafka.shared.checked import checked


class CommitFuture:
    """Done once a later poll, commit or close has heard of the commit."""

    def __init__(self) -> None:
        self.is_done = False
        self.exception: KafkaError | None = None
        self.value: Any = None
        self._when_done: list[Callable[[], object]] = []

    def succeeded(self) -> bool:
        """Stored."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Not stored, or nobody knows."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Failed, and the same commit may be tried again."""
        return self.exception is not None and self.exception.retriable

    @checked
    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, value, **kwargs) once stored."""
        return self._then(lambda: self.succeeded() and f(*args, self.value, **kwargs))

    @checked
    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Call f(*args, error, **kwargs) once failed."""
        return self._then(lambda: self.failed() and f(*args, self.exception, **kwargs))

    @checked
    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Self:
        """Both, with one function."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def settle(self, offsets: Any, error: KafkaError | None) -> None:
        """The outcome; what was added is called."""
        assert not self.is_done, "a commit has one outcome"
        self.is_done, self.value, self.exception = True, offsets, error
        waiting, self._when_done = self._when_done, []
        for call in waiting:
            call()

    def _then(self, call: Callable[[], object]) -> Self:
        if self.is_done:
            call()
        else:
            self._when_done.append(call)
        return self

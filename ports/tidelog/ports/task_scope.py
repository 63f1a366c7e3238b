"""Owned tasks: started in a scope, ended with it, in an order that a seed can replay.

asyncio.TaskGroup cancels its children in the order of their addresses; this scope cancels in the
order in which they were started, so that one seed gives one trace.

Theory of operation. A scope is open while its body runs and while it waits for its children; then
it is closed for good. It begins to cancel once: at the first failure of a child, when its body
raises, when the task that owns it is cancelled while it waits, or by `cancel()`. From then on every
child is cancelled, also one that is started later (by a child that cleans up).

What leaves the scope, in this order:

 1. the cancellation of the owning task, by whomever: what was told to end must end, and no
    failure may hide that from loops that catch failures and try again;
 2. what failed first, the body or a child. (A body that is cancelled for a child's failure did
    not fail first, whatever it raises then.)

What is outranked is not lost: it becomes a note of the exception that leaves; behind a
cancellation, which nobody prints, it goes to the loop's exception handler unless it is a
TidelogError, the ordinary company of an end.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Self

from tidelog.wire.errors import TidelogError


class TaskScope:
    """`async with TaskScope() as scope: scope.start(work(), name="…")`.

    Leaving the scope waits for all children. The first child that raises cancels the others, in
    the order of their start, and the body; its exception leaves the scope. A child that was
    cancelled, by whomever, has not failed.
    """

    def __init__(self) -> None:
        self._children: dict[asyncio.Task[None], None] = {}
        self._parent: asyncio.Task[object] | None = None
        self._failures: list[tuple[str, BaseException]] = []
        """With the names of the children, in the order in which they failed."""
        self._is_leaving = False
        self._is_cancelling = False
        self._is_closed = False
        self._has_cancelled_parent = False
        """Whether one of the parent's cancellations is ours, and must be taken back."""
        self._cancellations_before = 0
        self._wake = asyncio.Event()

    def start(self, work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` as a child; its name shows in stacks and logs."""
        if self._parent is None or self._is_closed:
            work.close()
            raise AssertionError(f"{name} is started in a scope that nobody is in")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._children[task] = None
        task.add_done_callback(self._on_child_done)
        if self._is_cancelling:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel every child, oldest first; the body goes on, and the scope ends without error."""
        self._is_cancelling = True
        for task in list(self._children):
            task.cancel()

    async def __aenter__(self) -> Self:
        assert self._parent is None, "a scope is entered once"
        self._parent = asyncio.current_task()
        assert self._parent is not None, "a scope is entered by a task"
        self._cancellations_before = self._parent.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        parent = asyncio.current_task()
        assert parent is not None, "a scope is left by a task"
        assert parent is self._parent, "a scope is left by the task that entered it"
        self._is_leaving = True
        if error is not None:
            self.cancel()
        is_told_to_end = await self._wait_children()
        self._is_closed = True
        if self._has_cancelled_parent:
            parent.uncancel()
        is_told_to_end |= (
            isinstance(error, asyncio.CancelledError)
            and parent.cancelling() > self._cancellations_before
        )
        try:
            self._leave(error, is_told_to_end=is_told_to_end)
        finally:
            # An exception's traceback holds this frame: without these it would hold itself.
            self._failures.clear()
            del parent, error, trace

    def _leave(self, body: BaseException | None, *, is_told_to_end: bool) -> None:
        """Raise what leaves the scope; return to let the body's own outcome stand."""
        failures = self._ranked(body)
        if is_told_to_end:
            _report(failures)
            if isinstance(body, asyncio.CancelledError):
                return
            raise asyncio.CancelledError
        if not failures:
            return
        leaving = failures[0][1]
        for name, failure in failures[1:]:
            leaving.add_note(f"{name} failed too: {failure!r}")
        if leaving is body:
            return
        context = leaving.__context__
        try:
            raise leaving
        finally:
            # The body's cancellation, which is being handled, would replace what led to it.
            leaving.__context__ = context
            del leaving, failures, body, context

    def _ranked(self, body: BaseException | None) -> list[tuple[str, BaseException]]:
        """All that failed, with names; the first of them leaves the scope."""
        failures = list(self._failures)
        has_body_failed = body is not None and not isinstance(body, asyncio.CancelledError)
        if has_body_failed and all(failure is not body for _, failure in failures):
            assert body is not None, "checked above"
            failures.insert(1 if self._has_cancelled_parent else 0, ("the body", body))
        return failures

    async def _wait_children(self) -> bool:
        """Wait until no child is left; a cancellation meanwhile is passed on and remembered."""
        is_told_to_end = False
        while self._children:
            self._wake.clear()
            try:
                await self._wake.wait()
            except asyncio.CancelledError:
                is_told_to_end = True
                self.cancel()
        return is_told_to_end

    def _on_child_done(self, task: asyncio.Task[None]) -> None:
        del self._children[task]
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failure(task.get_name(), failure)
        if not self._children:
            self._wake.set()

    def _on_failure(self, name: str, failure: BaseException) -> None:
        self._failures.append((name, failure))
        if len(self._failures) > 1:
            return
        self.cancel()
        if not self._is_leaving:
            assert self._parent is not None, "a child has a scope that was entered"
            self._has_cancelled_parent = self._parent.cancel()


def _report(failures: list[tuple[str, BaseException]]) -> None:
    for name, failure in failures:
        if not isinstance(failure, TidelogError):
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{name} failed while its scope was cancelled", "exception": failure}
            )

"""Owned tasks: started in a scope, ended with it, in an order that a seed can replay.

asyncio.TaskGroup cancels its children in the order of their addresses; this scope cancels in the
order in which they were started, so that one seed gives one trace.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Self


class TaskScope:
    """`async with TaskScope() as scope: scope.start(work(), name="…")`.

    Leaving the scope waits for all children. The first child that raises cancels the others, in
    the order of their start, and its exception leaves the scope. `cancel()` ends all children.
    """

    def __init__(self) -> None:
        self._children: dict[asyncio.Task[None], None] = {}
        self._parent: asyncio.Task[object] | None = None
        self._failure: BaseException | None = None
        self._is_leaving = False
        self._is_parent_cancelled = False
        self._done = asyncio.Event()

    def start(self, work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Run `work` as a child; its name shows in stacks and logs."""
        assert self._parent is not None, "a scope is entered before it starts children"
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._children[task] = None
        task.add_done_callback(self._on_child_done)
        if self._failure is not None:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel every child, oldest first."""
        for task in list(self._children):
            task.cancel()

    async def __aenter__(self) -> Self:
        self._parent = asyncio.current_task()
        assert self._parent is not None, "a scope is entered by a task"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_leaving = True
        if kind is not None:
            self.cancel()
        cancelled_while_waiting = await self._wait_children()
        if self._failure is not None and self._is_parent_cancelled and self._parent is not None:
            self._parent.uncancel()
        if self._failure is not None and (kind is None or self._is_parent_cancelled):
            raise self._failure
        if cancelled_while_waiting:
            raise asyncio.CancelledError

    async def _wait_children(self) -> bool:
        """Wait until no child is left; a cancellation meanwhile is passed on and remembered."""
        is_cancelled = False
        while self._children:
            self._done.clear()
            try:
                await self._done.wait()
            except asyncio.CancelledError:
                is_cancelled = True
                self.cancel()
        return is_cancelled and not self._is_parent_cancelled

    def _on_child_done(self, task: asyncio.Task[None]) -> None:
        del self._children[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
        if not self._children:
            self._done.set()

    def _on_failure(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self.cancel()
        if not self._is_leaving and self._parent is not None:
            self._is_parent_cancelled = True
            self._parent.cancel()

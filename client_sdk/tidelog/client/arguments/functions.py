"""Functions that the client calls: plain ones, which have done their work when they have returned.

An async function that is called as if it were a plain one does nothing: it returns something that
nobody awaits. Where it can be seen it is refused before anything is done, and elsewhere when what
it has returned comes back. It must never count as done.
"""

import functools
import inspect
from collections.abc import Awaitable
from typing import Any

from tidelog.client.arguments.kinds import function, wrong_type
from tidelog.client.errors import ArgumentTypeError
from tidelog.wire.errors import TidelogError


def is_async_function(value: object) -> bool:
    """Whether calling it gives something to await, as far as one sees without calling it."""
    while isinstance(value, functools.partial):
        value = value.func
    call = getattr(type(value), "__call__", None)  # noqa: B004 - it is looked at, not tested for
    return any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (value, call)
    )


def plain_function(value: Any, tried: str, name: str, hint: str = "") -> Any:
    """A function that is not an async one; the hint says where an async one is at home."""
    function(value, tried, name)
    if is_async_function(value):
        raise wrong_type(
            tried,
            name,
            value,
            "a plain function: nobody would await an async one",
            f"pass a plain function as {name}{hint}",
        )
    return value


def refuse_awaitable(found: object, name: str, tried: str) -> None:
    """What a plain function returned: one that wants to be awaited has done nothing so far."""
    if found is None or not inspect.isawaitable(found):
        return
    raise never_awaited(found, name, tried)


def never_awaited(found: Awaitable[object], name: str, tried: str) -> TidelogError:
    """It is closed, so that Python does not warn as well."""
    if inspect.iscoroutine(found):
        found.close()
    return ArgumentTypeError(
        tried=tried,
        happened=f"{name} returned a {type(found).__name__}, which nobody awaits: "
        "its work was not done",
        hint=f"pass a plain function as {name}, not an async one",
    )


def check_plain_listener(listener: object) -> None:
    """Refuses what a synchronous consumer would call and nobody would await."""
    for name in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
        if is_async_function(getattr(listener, name, None)):
            raise ArgumentTypeError(
                tried="subscribe with a listener",
                happened=f"listener has an async method {name}, which a Consumer does not await",
                hint="make it a plain method, or use the asynchronous consumer",
            )

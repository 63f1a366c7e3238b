"""Children and bodies for the tests of TaskScope."""

import asyncio

from tidelog.wire.errors import ErrorCode, TidelogError


class Trouble(Exception):
    """A failure of a child or a body."""


async def never() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


async def fail(error: BaseException) -> None:
    """Fail at once."""
    raise error


async def fail_after(turns: int, error: BaseException) -> None:
    """Fail some turns of the loop later."""
    for _ in range(turns):
        await asyncio.sleep(0)
    raise error


async def fail_when_cancelled(error: BaseException) -> None:
    """Fail in the cleaning up."""
    try:
        await never()
    finally:
        raise error


async def note_end(log: list[str], name: str) -> None:
    """Write down the own cancellation."""
    try:
        await never()
    except asyncio.CancelledError:
        log.append(name)
        raise


def ordinary() -> TidelogError:
    return TidelogError(ErrorCode.UNAVAILABLE, tried="close", happened="the peer is gone")

"""How long a test waits for what must come: until it comes.

Owns the one deadline of every test that waits for a process, a thread or a socket: so late that
only a hang reaches it, on whatever machine and beside whatever load. How fast something is, is
measured by the benches; a test never says it, and asserts instead what happened, in which order,
and how often.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

HANG_SECONDS: Final = 300
HANG_MS: Final = 300_000
NEVER_MS: Final = 86_400_000
"""A deadline of the product's that no test lives to see."""
_PAUSE_SECONDS: Final = 0.02

T = TypeVar("T")


def _pause() -> None:
    time.sleep(_PAUSE_SECONDS)


def _nothing() -> str:
    return "it never came to hold"


def wait_until(
    holds: Callable[[], T],
    *,
    turn: Callable[[], object] = _pause,
    told: Callable[[], object] = _nothing,
) -> T:
    """What it answers as soon as that is true; between two looks `turn` is taken.

    What `told` says is the failure's text, should it never become true.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while not (found := holds()):
        assert time.monotonic() < deadline, told()
        turn()
    return found


def with_more_time(check: Callable[[int], None], first_ms: int) -> None:
    """Makes the check with this limit, then with ten and a hundred times as much, until it holds.

    For what has to happen *within* a limit that the test gives, as a first answer has. That the
    limit ends the call is asserted as it is; that enough came before, a busy machine may make
    false.
    """
    for limit_ms in (first_ms, 10 * first_ms):
        try:
            check(limit_ms)
        except AssertionError:
            continue
        return
    check(100 * first_ms)


def ended(call: Callable[[], T]) -> T:
    """What the call answers or raises. It is given to a thread: one that hangs fails the test.

    For calls whose deadline is what the test is about: every other deadline is set so far away
    that only the right one can end the call.
    """
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            found.set_exception(error)

    threading.Thread(target=work, name="ended", daemon=True).start()
    return found.result(HANG_SECONDS)

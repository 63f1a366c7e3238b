"""Which threads are the SDK's own, and that nothing on them waits for the SDK.

A producer's thread takes the answers of its brokers and runs the callbacks of its futures; a group
member's thread sends the heartbeats. A call that waits on such a thread would wait for something
that only this thread, or one that waits for it in turn, can bring: it would never end, and stop
everything else of that client without a word. Such calls are refused before they do anything.
"""

import threading

from tidelog.wire.errors import ErrorCode, TidelogError


class _Here(threading.local):
    """Of each thread its own."""

    is_io = False


_here = _Here()


def become_io_thread() -> None:
    """First thing on a thread of the SDK's own."""
    _here.is_io = True


def is_io_thread() -> bool:
    """Whether the caller, such as a callback, runs on a thread of the SDK's own."""
    return _here.is_io


def refuse_waiting(tried: str) -> None:
    """Before a wait: an error on a thread that others wait for."""
    if is_io_thread():
        raise TidelogError(
            ErrorCode.CONCURRENT_USE,
            tried=f"{tried} inside a callback",
            happened="callbacks run on the client's I/O thread, which is the one that takes "
            "the brokers' answers: the call would wait for ever",
            hint="let the callback hand the work to a thread of your own, such as by queue.put(); "
            "it may send(), as long as that need not wait",
        )

"""What is said of an asyncio client that nobody closed: no loop is left to finish its work.

Owns the words. A client asks for them once, when its task ends without a stop, when it is freed, or
when the interpreter ends, whichever comes first.
"""

import logging
import warnings

_log = logging.getLogger("tidelog.client")


def tell_unstopped(client: object, name: str, lost: str) -> None:
    """To whoever looks for leaks; what is lost by it to everybody."""
    advice = "await its close(), or use `async with`"
    if lost:
        _log.warning("%s was not closed before its event loop ended: %s; %s", name, lost, advice)
    warnings.warn(f"{name} was not closed: {advice}", ResourceWarning, 2, source=client)

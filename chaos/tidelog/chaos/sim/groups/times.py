"""Time as members and what befalls them see it: an agenda of callbacks, or an event loop."""

from collections.abc import Callable
from typing import Protocol


class Times(Protocol):
    """Virtual time, and what happens at which."""

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        ...

    def after(self, delay_ns: int, callback: Callable[..., None], *arguments: object) -> None:
        """Call it then."""
        ...

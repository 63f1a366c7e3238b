"""What happened in a run: a running hash over it, counters by kind, and the lines for a reader.

Two runs with one hash did the same things in the same order. Only subjects, kinds and virtual
times go in, never an address, an id() or the order of a set. Names that the code gives itself (a
task, a class, a function) go in by the order of their first use: renaming or moving a piece of
code, which changes nothing that happens, leaves the hash as it was. That is how a change of the
layout is shown to be nothing else.
"""

import hashlib
from collections.abc import Callable
from typing import Final

_LINES_PER_UPDATE: Final = 2048


class Trace:
    """`step` is called for each step of the loop, `note` for each event of the world."""

    def __init__(self, now_ns: Callable[[], int] = lambda: 0) -> None:
        self._now_ns = now_ns
        self._hash = hashlib.blake2b(digest_size=16)
        self._lines: list[str] = []
        self._ordinals: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.transitions: dict[tuple[str, str], None] = {}
        self.state = "start"
        """What the world is like at the moment; with an event's kind it makes a transition."""
        self.events = 0
        self.is_closed = False
        """The run is over; what ends now is not part of it."""
        self.on_event: Callable[[int, str, str, str], None] | None = None
        """Called with (time_ns, subject, kind, detail): prints the trace of one seed."""

    def use_clock(self, now_ns: Callable[[], int]) -> None:
        """Virtual time, once there is a loop."""
        self._now_ns = now_ns

    def step(self, number: int) -> None:
        """Note that a task ran, by the number of its creation; 0 stands for any plain callback."""
        self._add(str(number))

    def _add(self, line: str) -> None:
        self._lines.append(line)
        if len(self._lines) >= _LINES_PER_UPDATE:
            self._update()

    def note(self, subject: str, kind: str, detail: str = "", *, name: str = "") -> None:
        """Note an event of the world: a delivery, a disk operation, a fault, a timer.

        `name` is a name of the code's own that a reader of the trace wants to see.
        """
        if self.is_closed:
            return
        now_ns = self._now_ns()
        self.events += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.transitions[self.state, kind] = None
        self._add(f"{now_ns} {subject} {self._ordinal(kind)} {self._ordinal(name)} {detail}")
        if self.on_event is not None:
            self.on_event(now_ns, subject, kind, f"{name} {detail}" if name else detail)

    def hash_text(self) -> str:
        """The hash of everything so far."""
        self._update()
        return self._hash.copy().hexdigest()

    def _ordinal(self, word: str) -> int:
        return self._ordinals.setdefault(word, len(self._ordinals))

    def _update(self) -> None:
        if self._lines:
            self._hash.update("\n".join(self._lines).encode())
            self._hash.update(b"\n")
            self._lines.clear()

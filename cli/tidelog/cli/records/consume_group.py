"""`tidelog consume -g`: records to stdout as a member of a group.

Owns what is committed and when: only what has been written, every second and at the end, so that
whoever goes on prints nothing that was printed before, unless this process died. On Ctrl-C or
SIGTERM it commits and leaves at once, for the others to take over. Behind Ctrl-C it has less than
200 ms for that, and behind SIGTERM, where nobody looks at a terminal, some seconds.
"""

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.frame.interrupt import stop_in_order, told
from tidelog.cli.show.errors import print_stderr

if TYPE_CHECKING:
    from tidelog.cli.records.consume import Printing
    from tidelog.client import Consumer, TopicPartition

COMMIT_SECONDS: Final = 1.0
"""How much is printed again if this process is killed."""
PARTITIONS_SECONDS_MAX: Final = 10.0
"""With -e: a member that gets no partitions for so long has nothing to print."""
LAST_COMMIT_MS: Final = {signal.SIGINT: 60, signal.SIGTERM: 3_000}
"""The rest of what `interrupt` gives is for leaving the group."""
_POLL_MS: Final = 500
_POLL_BYTES: Final = 4 * 1024 * 1024


class GroupReading:
    """The loop: batches in, bytes out, offsets committed behind them."""

    def __init__(
        self,
        consumer: "Consumer",
        printing: "Printing",
        ends: "dict[TopicPartition, int] | None",
    ) -> None:
        self._consumer = consumer
        self._printing = printing
        self._ends = ends
        """None: there is no end."""
        self._written: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._began_at = time.monotonic()

    def run(self) -> None:
        """Until the end, the count or Ctrl-C, which is raised."""
        from tidelog.client.errors import WakeupError

        stop_in_order(self._consumer.wakeup)
        try:
            while not self._is_done():
                self._turn()
            self._commit()
        except WakeupError:
            from tidelog.wire.errors import TidelogError

            # What cannot be committed in time is printed again by whoever goes on.
            with contextlib.suppress(TidelogError):
                self._commit(LAST_COMMIT_MS[signal.Signals(told())])
            # Here, and not when the error below ends the `with` block: that is in more haste.
            self._consumer.close(autocommit=False)
            raise KeyboardInterrupt from None

    def _turn(self) -> None:
        from tidelog.cli.records.consume import check_reader, write_out

        batches = self._consumer.poll_batches(_POLL_MS, _POLL_BYTES, include_left_out=True)
        parts = []
        for batch in batches:
            rendered, next_offset = self._printing.take(batch, None)
            parts.append(rendered)
            if next_offset is not None:
                self._written[batch.topic_partition] = next_offset
        if batches:
            write_out(b"".join(parts))
        else:
            check_reader(sys.stdout.fileno())
        if self._written and time.monotonic() - self._committed_at >= COMMIT_SECONDS:
            self._consumer.commit_async(self._still_ours())
            self._written = {}
            self._committed_at = time.monotonic()

    def _still_ours(self) -> "dict[TopicPartition, Any]":
        """What another member has by now is its to commit."""
        owned = self._consumer.assignment()
        return {name: offset for name, offset in self._written.items() if name in owned}

    def _commit(self, timeout_ms: int | None = None) -> None:
        offsets = self._still_ours()
        if offsets:
            self._consumer.commit(offsets, timeout_ms)
        self._written = {}

    def _is_done(self) -> bool:
        if self._printing.is_full:
            return True
        if self._ends is None:
            return False
        owned = self._consumer.assignment()
        if not owned:
            is_late = time.monotonic() - self._began_at > PARTITIONS_SECONDS_MAX
            if is_late:
                print_stderr("the group has no partitions for this member")
            return is_late
        return all(self._consumer.position(name) >= self._ends.get(name, 0) for name in owned)

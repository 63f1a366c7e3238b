"""Who waits for news of partitions: of their watermarks, of their logs' ends, of doubt about them.

Owns the lists only, and who asks coordinators of transactions for the leaders here. A watcher is
called on the loop, in the order in which it came, and must not block.
"""

from collections.abc import Callable

from tidelog.broker.directory.core.messages import Verify
from tidelog.broker.directory.owner.owner import DirectoryOwner
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import PartitionKey

Watcher = Callable[[PartitionKey], None]
Doubter = Callable[[TidelogError], None]
Questioned = Callable[[Verify, DirectoryOwner], None]


class ReplicaWatchers:
    """What `Replicas` tells to whom."""

    def __init__(self) -> None:
        self._watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._end_watchers: dict[PartitionKey, dict[Watcher, None]] = {}
        self._doubters: dict[Doubter, None] = {}
        self._questioned: Questioned | None = None

    def watch(self, key: PartitionKey, watcher: Watcher) -> None:
        """Call back when the partition's high watermark moves or the partition stops."""
        self._watchers.setdefault(key, {})[watcher] = None

    def unwatch(self, key: PartitionKey, watcher: Watcher) -> None:
        """Undo `watch`."""
        _remove(self._watchers, key, watcher)

    def watch_end(self, key: PartitionKey, watcher: Watcher) -> None:
        """Call back when the log's end or its flushed offset moves, of one of several replicas."""
        self._end_watchers.setdefault(key, {})[watcher] = None

    def unwatch_end(self, key: PartitionKey, watcher: Watcher) -> None:
        """Undo `watch_end`."""
        _remove(self._end_watchers, key, watcher)

    def watch_doubt(self, doubter: Doubter) -> None:
        """Call back when what this broker knows of its partitions may be over, with the reason."""
        self._doubters[doubter] = None

    def unwatch_doubt(self, doubter: Doubter) -> None:
        """Undo `watch_doubt`."""
        self._doubters.pop(doubter, None)

    def doubt(self, error: TidelogError) -> None:
        """Nothing was heard from a controller for so long that others may lead by now."""
        for doubter in list(self._doubters):
            doubter(error)

    def answer_questions(self, questioned: Questioned | None) -> None:
        """Have coordinators asked by this one, which tells each owner the answer; None: by nobody,
        and every owner hears so."""
        assert questioned is None or self._questioned is None, "one asks coordinators"
        self._questioned = questioned

    def _on_verify(self, question: Verify, owner: DirectoryOwner) -> None:
        if self._questioned is not None:
            self._questioned(question, owner)
            return
        nobody = TidelogError(
            ErrorCode.UNAVAILABLE,
            tried=f"verify the transaction of `{question.transactional_id}`",
            happened="this broker asks no coordinators of transactions: it is starting or stopping",
        )
        owner.verified(question, nobody)

    def _on_advanced(self, key: PartitionKey) -> None:
        for watcher in list(self._watchers.get(key, ())):
            watcher(key)

    def _on_moved(self, key: PartitionKey) -> None:
        for watcher in list(self._end_watchers.get(key, ())):
            watcher(key)


def _remove(
    all_: dict[PartitionKey, dict[Watcher, None]], key: PartitionKey, watcher: Watcher
) -> None:
    watchers = all_.get(key)
    if watchers is not None:
        watchers.pop(watcher, None)
        if not watchers:
            del all_[key]

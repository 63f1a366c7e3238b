"""Carries a plan of moves out, a bounded number at a time, and takes the throttle off again.

Owns the order: the throttle with the first moves, the moves, the preferred leaders, the throttle
away. It must never leave a throttle behind without saying how it is removed. What has begun goes on
by itself in the cluster, whatever becomes of this command.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidelog.cli.cluster.rebalance_plan import Move, next_moves
from tidelog.cli.partition.throttle import ConfigAdmin, Say, Throttle
from tidelog.client.types.admin import ElectionOutcome, ElectionType, PartitionReassignment
from tidelog.client.types.records import TopicPartition
from tidelog.wire.errors import ErrorCode, TidelogError

WATCH: Final = "tidelog partition list-reassignments"
REQUEST_MOVES_MAX: Final = 1_000
"""In one call."""
POLL_SECONDS: Final = 1.0
FAILURES_MAX: Final = 6
"""Polls in a row that nobody answered, each tried until the client's own deadline."""
ELECTION_SECONDS_MAX: Final = 30.0


class Admin(ConfigAdmin, Protocol):
    """What is needed of the admin client."""

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        throttle_bytes_per_second: int = 0,
    ) -> dict[TopicPartition, TidelogError | None]:
        """Begin."""
        ...

    def list_partition_reassignments(
        self, timeout_ms: int | None = None
    ) -> list[PartitionReassignment]:
        """What goes on."""
        ...

    def elect_leaders(
        self,
        election_type: ElectionType,
        topic_partitions: Sequence[TopicPartition] | None = None,
        broker_id: int = -1,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[ElectionOutcome]:
        """Preferred leaders."""
        ...


class Execution:
    """One plan on its way."""

    def __init__(
        self,
        admin: Admin,
        moves: Sequence[Move],
        *,
        throttle: int,
        say: Say,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._admin = admin
        self._all = list(moves)
        self._waiting = list(moves)
        self._moving: dict[TopicPartition, None] = {}
        self._throttle = Throttle(admin, throttle)
        self._say = say
        self._now = now
        self._pause = pause
        self._told = ""
        self._failures = 0
        self.refused: dict[TopicPartition, TidelogError] = {}

    @property
    def done_count(self) -> int:
        """Partitions that stand where they are to stand."""
        return len(self._all) - len(self._waiting) - len(self._moving) - len(self.refused)

    def begin(self) -> None:
        """Everything at once, and nobody waits."""
        self._throttle.remember()
        while self._waiting:
            self._start(self._waiting[:REQUEST_MOVES_MAX])

    def run(self, *, at_once: int, seconds_max: float) -> bool:
        """Until all has moved; False: not in time, and what has begun goes on."""
        self._throttle.remember()
        deadline = self._now() + seconds_max
        while self._waiting or self._moving:
            begins, _ = next_moves(self._waiting, len(self._moving), at_once=at_once)
            if begins:
                self._start(begins[:REQUEST_MOVES_MAX])
            self._look()
            self._tell()
            if self._moving:
                if self._now() > deadline:
                    return False
                self._pause(POLL_SECONDS)
        self._elect()
        self._throttle.restore(self._say)
        return True

    def _start(self, moves: Sequence[Move]) -> None:
        outcomes = self._admin.alter_partition_reassignments(
            {each.partition: each.after for each in moves},
            throttle_bytes_per_second=self._throttle.bytes_per_second,
        )
        for place, error in outcomes.items():
            if error is not None:
                self.refused[place] = error
            else:
                self._moving[place] = None
        begun = {each.partition for each in moves}
        self._waiting = [each for each in self._waiting if each.partition not in begun]

    def _look(self) -> None:
        """What is not listed any more is there."""
        if not self._moving:
            return
        try:
            listed = {each.partition for each in self._admin.list_partition_reassignments()}
        except TidelogError as error:
            self._failures += 1
            if self._failures >= FAILURES_MAX or not error.retriable:
                raise
            return
        self._failures = 0
        self._moving = {place: None for place in self._moving if place in listed}

    def _tell(self) -> None:
        text = f"{self.done_count} of {len(self._all)} partitions moved, {len(self._moving)} moving"
        if text != self._told:
            self._told = text
            self._say(text)

    def _elect(self) -> None:
        """The first replica of each leads, once it is in sync."""
        places = [each.partition for each in self._all if each.partition not in self.refused]
        deadline = self._now() + ELECTION_SECONDS_MAX
        while places:
            outcomes = self._admin.elect_leaders(ElectionType.PREFERRED, places)
            places = [each.partition for each in outcomes if each.error is not None]
            if places and self._now() > deadline:
                self._say(
                    f"{len(places)} partitions are not led by their first replica yet; later: "
                    "tidelog partition elect-leaders --all"
                )
                return
            if places:
                self._pause(POLL_SECONDS)

    def advice(self) -> str:
        """How to go on without this command."""
        said = f"what has begun goes on; `{WATCH}` shows it"
        if self._waiting:
            said += f", {len(self._waiting)} partitions wait: run the command again for them"
        return f"{said}{self._throttle.advice()}"


def out_of_time(execution: Execution, seconds: float) -> TidelogError:
    """Not all has moved in time."""
    return TidelogError(
        ErrorCode.DEADLINE_EXCEEDED,
        tried="rebalance the cluster",
        happened=f"{execution.done_count} partitions moved within {seconds:.0f} s",
        hint=execution.advice(),
    )

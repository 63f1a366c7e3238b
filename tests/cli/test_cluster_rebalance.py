"""Plans of moves: their figures, what is refused, and how they are carried out."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.broker.drain import wait_empty
from tidelog.cli.cluster.rebalance import as_json, as_text
from tidelog.cli.cluster.rebalance_plan import (
    Forecast,
    Move,
    Standing,
    forecast,
    next_moves,
    problems,
    standings,
)
from tidelog.cli.cluster.rebalance_run import Execution, out_of_time
from tidelog.cli.partition.throttle import REMOVE_THROTTLE, THROTTLE
from tidelog.client import ConfigResource, ElectionType, TopicPartition
from tidelog.client.types.admin import (
    BrokerStatus,
    ConfigDescription,
    ConfigEntry,
    ElectionOutcome,
    PartitionReassignment,
)
from tidelog.client.types.records import PartitionDescription, TopicDescription
from tidelog.wire.errors import ErrorCode, TidelogError

THERE = TopicPartition("t", 0)


def broker(number: int, rack: str = "", state: str = "live") -> BrokerStatus:
    """As the controller lists it."""
    return BrokerStatus(
        broker_id=number,
        broker_epoch=number,
        address=f"h{number}:1",
        rack=rack,
        host="",
        is_fenced=state == "fenced",
        is_draining=state == "draining",
        is_shutting_down=state == "stopping",
        leader_count=0,
        replica_count=0,
        last_contact_ms=0,
        release="1",
    )


def standing(*replicas: int, size_bytes: int = 100) -> Standing:
    """Led by its first replica."""
    return Standing(replicas=replicas, leader=replicas[0], size_bytes=size_bytes)


def planned(
    before: tuple[int, ...], after: tuple[int, ...], brokers: Sequence[BrokerStatus]
) -> Forecast:
    """One partition that moves."""
    return forecast({THERE: standing(*before)}, brokers, {THERE: after})


# -- the figures ---------------------------------------------------------------------------------


def some(numbers: Sequence[int], count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """So many of them, in any order."""
    return st.permutations(numbers).map(lambda drawn: tuple(drawn[:count]))


@given(st.data())
def test_figures_after_a_plan_are_those_of_the_cluster_that_it_makes(data: st.DataObject) -> None:
    numbers = list(range(1, data.draw(st.integers(2, 6)) + 1))
    size = data.draw(st.integers(1, min(3, len(numbers))))
    before = data.draw(st.lists(some(numbers, size), min_size=1, max_size=12))
    after = {
        place: data.draw(some(numbers, size))
        for place in range(len(before))
        if data.draw(st.booleans())
    }
    found = forecast(
        {TopicPartition("t", place): standing(*each) for place, each in enumerate(before)},
        [broker(number) for number in numbers],
        {TopicPartition("t", place): each for place, each in after.items()},
    )
    then = [after.get(place, each) for place, each in enumerate(before)]
    for load in found.brokers:
        number = load.broker_id
        assert load.replicas_before == sum(number in each for each in before)
        assert load.replicas_after == sum(number in each for each in then)
        assert load.leaders_before == sum(each[0] == number for each in before)
        assert load.leaders_after == sum(each[0] == number for each in then)
    copies = sum(len(set(then[p]) - set(before[p])) for p in range(len(before)))
    assert found.replicas_copied == copies
    assert found.copied_bytes == 100 * copies == sum(each.incoming_bytes for each in found.brokers)
    assert all(move.before != move.after for move in found.moves), "what stays is no move"


def test_a_size_that_is_not_known_makes_the_sum_unknown_and_a_new_order_costs_nothing() -> None:
    places = {THERE: standing(1, 2, size_bytes=-1)}
    brokers = [broker(1), broker(2), broker(3)]
    assert forecast(places, brokers, {THERE: (3, 2)}).copied_bytes == -1
    assert forecast(places, brokers, {THERE: (2, 1)}).copied_bytes == 0


def test_an_unfinished_move_counts_as_if_it_were_done() -> None:
    part = PartitionDescription(
        partition=0,
        leader=1,
        leader_epoch=1,
        replicas=(3, 2, 1),
        isr=(1, 2),
        log_start_offset=0,
        high_watermark=5,
        size_bytes=7,
    )
    topic = TopicDescription(
        name="t",
        topic_id=bytes(16),
        is_internal=False,
        replication_factor=2,
        configs={},
        partitions=(part,),
    )
    move = PartitionReassignment(
        partition=THERE,
        replicas=(3, 2, 1),
        adding_replicas=(3,),
        removing_replicas=(1,),
        remaining_bytes=-1,
    )
    assert standings([topic], [move])[THERE].replicas == (3, 2)


# -- what is refused -----------------------------------------------------------------------------

THREE = [broker(1), broker(2), broker(3)]
RACKS = [broker(1, "a"), broker(2, "b"), broker(3, "b"), broker(4, "a")]


@pytest.mark.parametrize(
    ("before", "after", "brokers", "why"),
    [
        ((1, 2), (3, 3), THREE, "two replicas on one broker"),
        ((1, 2), (1,), THREE, "fewer replicas"),
        ((1, 2), (3, 2), RACKS, "fewer racks"),
        ((1,), (2,), [broker(1), broker(2, state="fenced")], "takes none"),
        ((1,), (2,), [broker(1), broker(2, state="draining")], "takes none"),
        ((1,), (2,), [broker(1), broker(2, state="stopping")], "takes none"),
        ((1,), (9,), [broker(1)], "takes none"),
    ],
)
def test_a_plan_that_would_do_harm_is_told(
    before: tuple[int, ...], after: tuple[int, ...], brokers: list[BrokerStatus], why: str
) -> None:
    (problem,) = problems(planned(before, after, brokers))
    assert "t:0" in problem
    assert why in problem


def test_a_sound_plan_has_no_problems_and_a_broker_that_is_emptied_may_cost_a_rack() -> None:
    assert problems(planned((1, 2), (4, 3), RACKS)) == []
    assert problems(planned((3, 2), (3, 4), RACKS)) == []
    leaving = [broker(1, "a", "draining"), broker(2, "b"), broker(3, "b")]
    assert problems(planned((1, 2), (3, 2), leaving)) == []


# -- bites ---------------------------------------------------------------------------------------


@given(
    st.lists(st.booleans(), max_size=30), st.integers(min_value=1, max_value=5), st.integers(0, 6)
)
def test_no_more_copies_begin_than_may_and_all_begin_in_the_end(
    copies: list[bool], at_once: int, moving: int
) -> None:
    moves = [
        Move(
            partition=TopicPartition("t", place),
            before=(1, 2),
            after=(3, 2) if is_copied else (2, 1),
            size_bytes=1,
        )
        for place, is_copied in enumerate(copies)
    ]
    begins, waiting = next_moves(moves, moving, at_once=at_once)
    begun = sum(bool(each.coming) for each in begins)
    assert begun <= max(0, at_once - moving)
    assert all(each.coming for each in waiting), "a new order waits for nothing"
    assert not waiting or begun == max(0, at_once - moving)
    assert sorted([*begins, *waiting], key=lambda each: each.partition) == moves


# -- carried out ---------------------------------------------------------------------------------


class Cluster:
    """An admin client that moves what it is told to, some polls later."""

    def __init__(self, *, polls: int = 2, throttle: str | None = None) -> None:
        self.polls = polls
        self.throttle = throttle
        self.moving: dict[TopicPartition, int] = {}
        self.most_moving = 0
        self.elected: list[TopicPartition] = []
        self.late_elections = 0
        self.refusal: TidelogError | None = None
        self.silences = 0
        self.throttles: list[str | None] = []

    def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        throttle_bytes_per_second: int = 0,
    ) -> dict[TopicPartition, TidelogError | None]:
        del timeout_ms, validate_only
        if throttle_bytes_per_second:
            self.throttle = str(throttle_bytes_per_second)
        self.moving.update({place: self.polls for place in reassignments if self.refusal is None})
        self.most_moving = max(self.most_moving, len(self.moving))
        return dict.fromkeys(reassignments, self.refusal)

    def list_partition_reassignments(
        self, timeout_ms: int | None = None
    ) -> list[PartitionReassignment]:
        del timeout_ms
        if self.silences:
            self.silences -= 1
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="list", happened="nobody answers")
        self.throttles.append(self.throttle)
        self.moving = {place: left - 1 for place, left in self.moving.items() if left > 1}
        return [
            PartitionReassignment(
                partition=place,
                replicas=(),
                adding_replicas=(),
                removing_replicas=(),
                remaining_bytes=-1,
            )
            for place in self.moving
        ]

    def elect_leaders(
        self,
        election_type: ElectionType,
        topic_partitions: Sequence[TopicPartition] | None = None,
        broker_id: int = -1,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> list[ElectionOutcome]:
        del broker_id, timeout_ms, validate_only
        assert election_type is ElectionType.PREFERRED
        self.late_elections -= 1
        late = TidelogError(ErrorCode.NO_ELIGIBLE_LEADER, tried="elect", happened="not in sync")
        error = late if self.late_elections >= 0 else None
        self.elected += topic_partitions or ()
        return [
            ElectionOutcome(partition=place, leader=1, error=error)
            for place in topic_partitions or ()
        ]

    def describe_configs(
        self,
        config_resources: Sequence[ConfigResource],
        names: Sequence[str] = (),
        timeout_ms: int | None = None,
    ) -> list[ConfigDescription]:
        del timeout_ms
        assert list(names) == [THROTTLE]
        entry = ConfigEntry(
            name=THROTTLE,
            value=self.throttle or "0",
            source="default" if self.throttle is None else "cluster",
            is_read_only=False,
            is_secret=False,
            documentation="",
        )
        return [ConfigDescription(resource=config_resources[0], entries=(entry,))]

    def alter_configs(
        self,
        config_resources: Sequence[ConfigResource],
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        del validate_only, timeout_ms
        (resource,) = config_resources
        self.throttle = resource.configs[THROTTLE]


def moves(count: int) -> list[Move]:
    """Each copies one replica."""
    return [
        Move(partition=TopicPartition("t", place), before=(1, 2), after=(3, 2), size_bytes=1)
        for place in range(count)
    ]


def execution(cluster: Cluster, count: int, throttle: int = 0) -> tuple[Execution, list[str]]:
    """Time passes only when it pauses."""
    said: list[str] = []
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    made = Execution(
        cluster,
        moves(count),
        throttle=throttle,
        say=said.append,
        now=lambda: clock[0],
        pause=pause,
    )
    return made, said


def test_all_moves_are_made_so_many_at_a_time_and_then_led_as_planned() -> None:
    cluster = Cluster()
    running, said = execution(cluster, 7)
    assert running.run(at_once=3, seconds_max=60)
    assert cluster.most_moving == 3
    assert (running.done_count, running.refused) == (7, {})
    assert cluster.elected == [each.partition for each in moves(7)]
    assert said[-1] == "7 of 7 partitions moved, 0 moving"
    assert len(said) == len(set(said)), "nothing is told twice"


@pytest.mark.parametrize("before", [None, "7000"])
def test_the_throttle_holds_while_replicas_move_and_is_as_before_afterwards(
    before: str | None,
) -> None:
    cluster = Cluster(throttle=before)
    running, said = execution(cluster, 3, throttle=5_000)
    assert running.run(at_once=1, seconds_max=60)
    assert set(cluster.throttles) == {"5000"}
    assert cluster.throttle == before
    assert said[-1].startswith("the throttle is ")


def test_a_move_that_is_refused_is_told_and_leaves_the_others_alone() -> None:
    cluster = Cluster()
    cluster.refusal = TidelogError(ErrorCode.INVALID_ARGUMENT, tried="move", happened="it is gone")
    running, _ = execution(cluster, 2)
    assert running.run(at_once=2, seconds_max=60)
    assert set(running.refused) == {each.partition for each in moves(2)}
    assert (running.done_count, cluster.elected) == (0, [])


def test_what_is_not_done_in_time_goes_on_and_says_how_the_throttle_is_removed() -> None:
    cluster = Cluster(polls=1_000)
    running, _ = execution(cluster, 5, throttle=5_000)
    assert not running.run(at_once=2, seconds_max=10)
    error = out_of_time(running, 10)
    assert error.code is ErrorCode.DEADLINE_EXCEEDED
    assert "3 partitions wait" in error.hint
    assert REMOVE_THROTTLE in error.hint
    assert cluster.throttle == "5000", "what moves is still held to it"


def test_a_controller_that_is_away_for_a_while_ends_nothing_and_one_that_stays_away_does() -> None:
    cluster = Cluster()
    cluster.silences = 5
    running, _ = execution(cluster, 2)
    assert running.run(at_once=2, seconds_max=600)
    assert running.done_count == 2
    cluster.silences = 6
    with pytest.raises(TidelogError, match="nobody answers"):
        execution(cluster, 2)[0].run(at_once=2, seconds_max=600)


def test_leaders_that_are_not_in_sync_yet_are_asked_for_again() -> None:
    cluster = Cluster()
    cluster.late_elections = 3
    running, _ = execution(cluster, 1)
    assert running.run(at_once=1, seconds_max=600)
    assert len(cluster.elected) == 4


def test_everything_begins_at_once_where_nobody_waits() -> None:
    cluster = Cluster(throttle="7000")
    running, _ = execution(cluster, 5, throttle=5_000)
    running.begin()
    assert cluster.most_moving == 5
    assert f"tidelog config set --cluster {THROTTLE}=7000" in running.advice()


# -- a broker that is emptied --------------------------------------------------------------------


class Brokers:
    """Broker 3 holds fewer replicas with each look; None: nobody answers."""

    def __init__(self, *held: int | None) -> None:
        self.held = list(held)

    def list_brokers(self, timeout_ms: int | None = None) -> list[BrokerStatus]:
        del timeout_ms
        left = self.held.pop(0) if len(self.held) > 1 else self.held[0]
        if left is None:
            raise TidelogError(ErrorCode.UNAVAILABLE, tried="list", happened="nobody answers")
        return [broker(1), msgspec.structs.replace(broker(3), replica_count=left, leader_count=1)]


def emptied(brokers: Brokers, seconds_max: float = 60) -> tuple[bool, list[str]]:
    """Whether broker 3 was seen empty, and what was told."""
    said: list[str] = []
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    is_empty = wait_empty(
        brokers, 3, seconds_max=seconds_max, say=said.append, now=lambda: clock[0], pause=pause
    )
    return is_empty, said


def test_a_broker_is_waited_for_until_it_holds_nothing_and_each_change_is_told_once() -> None:
    assert emptied(Brokers(2, None, 2, 1, 0)) == (
        True,
        ["broker 3: 2 replicas left, it leads 1", "broker 3: 1 replica left, it leads 1"],
    )


def test_a_broker_that_keeps_replicas_is_not_waited_for_longer_than_was_said() -> None:
    assert emptied(Brokers(2), seconds_max=5)[0] is False
    with pytest.raises(TidelogError, match="nobody answers"):
        emptied(Brokers(None), seconds_max=600)


# -- what is printed -----------------------------------------------------------------------------


def test_a_plan_is_a_table_of_moves_one_of_brokers_and_a_sum() -> None:
    found = planned((1, 2), (4, 2), RACKS)
    lines = as_text(found, ("A warning.",)).splitlines()
    assert lines[0].split() == ["Partition", "Replicas", "Planned", "Copied"]
    assert lines[1].split() == ["t:0", "1,2", "4,2", "100", "B"]
    assert lines[4].split() == ["1", "a", "live", "1", "0", "1", "0", "0", "B"]
    assert lines[-2:] == ["warning: A warning.", "1 partition to change, 1 replica to copy: 100 B"]
    assert as_text(planned((1,), (1,), RACKS), ()).endswith("\nthere is nothing to move")


def test_json_of_a_plan_keeps_its_names() -> None:
    told = as_json(planned((1, 2), (4, 2), RACKS), (), None)
    assert msgspec.json.decode(msgspec.json.encode(told["moves"])) == [
        {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2],
            "planned_replicas": [4, 2],
            "copied_bytes": 100,
            "error": None,
        }
    ]
    assert list(told) == ["is_executed", "moves", "brokers", "copied_bytes", "warnings"]

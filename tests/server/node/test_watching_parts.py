"""Parts of a node's watch by themselves: events of images, limits of lines, health, slow calls."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, cast

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor

from tests.server.cluster.test_bounds_in_world import all_methods
from tidelog.broker.services.middleware.metering import LongCall
from tidelog.broker.services.middleware.quota import Quotas
from tidelog.broker.shared.image_counts import ImageCounts
from tidelog.broker.shared.meter import Meter
from tidelog.metadata.image.image import BrokerImage, Image, ImageMap, PartitionImage, TopicImage
from tidelog.metadata_quorum.admin.access import method_name
from tidelog.ports import ListenerUsage, PageRequest, RequestContext
from tidelog.server.events import log as log_events
from tidelog.server.events.image import ImageEvents, RoleCounts
from tidelog.server.events.limit import LimitedEvents
from tidelog.server.metrics import slow_requests
from tidelog.server.metrics.health import Health
from tidelog.server.metrics.slow_requests import SlowRequests
from tidelog.server.metrics.sources import Sources
from tidelog.server.roles.broker import BrokerRole
from tidelog.server.settings.configuration import NodeConfiguration
from tidelog.server.watching.refusal_events import RefusalEvents
from tidelog.server.watching.watcher import NodeWatch
from tidelog.v1 import broker_peer_pb2, fetch_pb2
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    TopicId,
)

MS = 1_000_000
HERE = BrokerId(1)


class Lines:
    """An event log that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **values: object) -> None:
        self.lines.append(("info", event, values))

    def warning(self, event: str, **values: object) -> None:
        self.lines.append(("warning", event, values))

    def error(self, event: str, **values: object) -> None:
        self.lines.append(("error", event, values))

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.lines]


class TurnedClock:
    """Time that a test turns."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ns(self) -> int:
        return self.now_ms * MS

    def wall_ms(self) -> int:
        return 0

    def uptime_ns(self) -> int:
        return self.monotonic_ns()

    async def sleep(self, duration_ms: int) -> None:
        self.now_ms += duration_ms


# -- images --------------------------------------------------------------------------------------


def broker(number: int, *, epoch: int = 1, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        broker_id=BrokerId(number),
        epoch=BrokerEpoch(epoch),
        incarnation=b"",
        listeners={},
        host_name="h",
        rack="",
        is_fenced=is_fenced,
    )


def image(
    version: int, *brokers: BrokerImage, leader: int = 1, in_sync: Sequence[int] = (1, 2)
) -> Image:
    partition = PartitionImage(
        partition=PartitionId(0),
        leader_id=BrokerId(leader),
        leader_epoch=LeaderEpoch(version),
        partition_epoch=PartitionEpoch(version),
        replicas=(BrokerId(1), BrokerId(2)),
        in_sync_replicas=tuple(BrokerId(each) for each in in_sync),
    )
    topic = TopicImage(
        topic_id=TopicId(bytes(16)),
        name="t",
        configuration={},
        is_internal=False,
        partitions=(partition,),
    )
    return Image(
        version=version,
        brokers=ImageMap.of({each.broker_id: each for each in brokers}),
        topics=ImageMap.of({topic.topic_id: topic}),
    )


def told(before: Image, after: Image, *, is_controller: bool = False) -> Lines:
    lines = Lines()
    ImageEvents(HERE, lines, RoleCounts()).follow(before, after, is_controller=is_controller)
    return lines


def test_the_first_image_is_no_change() -> None:
    assert told(Image(), image(5, broker(2)), is_controller=True).lines == []


def test_a_leader_tells_who_left_and_who_joined_its_in_sync_set() -> None:
    lines = Lines()
    events = ImageEvents(HERE, lines, RoleCounts())
    both, alone = image(1), image(2, in_sync=(1,))
    events.follow(both, alone, is_controller=False)
    events.follow(alone, image(3), is_controller=False)
    assert lines.events == ["in_sync_shrunk", "in_sync_expanded"]
    assert lines.lines[0][2] == {"partition": "t-0", "without": "2", "in_sync": "1"}
    assert (events.counts.in_sync_shrinks, events.counts.in_sync_expands) == (1, 1)


def test_a_replica_that_was_moved_away_is_no_trouble() -> None:
    moved = image(2, in_sync=(1,))
    topics = list(moved.topics.values())
    (part,) = topics[0].partitions
    part = msgspec.structs.replace(part, replicas=(BrokerId(1),))
    topic = msgspec.structs.replace(topics[0], partitions=(part,))
    after = msgspec.structs.replace(moved, topics=ImageMap.of({topic.topic_id: topic}))
    assert told(image(1), after).lines == [
        ("info", "replica_moved_away", {"partition": "t-0", "brokers": "2"})
    ]


def test_a_follower_leaves_the_in_sync_set_to_its_leader() -> None:
    assert told(image(1, leader=2), image(2, leader=2, in_sync=(2,))).lines == []


def test_who_begins_and_who_ceases_to_lead_tells_it() -> None:
    assert told(image(1, leader=2), image(2)).events == ["leadership_begun"]
    assert told(image(1), image(2, leader=2)).events == ["leadership_ended"]
    assert told(image(1, leader=2), image(2, leader=-1)).events == []


def test_the_controller_tells_of_partitions_without_a_leader() -> None:
    lines = told(image(1, leader=2), image(2, leader=-1), is_controller=True)
    assert [(level, event) for level, event, _ in lines.lines] == [("error", "partition_offline")]
    lines = told(image(1, leader=-1), image(2, leader=2), is_controller=True)
    assert lines.events == ["partition_online"]


def test_the_controller_tells_what_becomes_of_brokers() -> None:
    none, live, dead = image(1), image(2, broker(2)), image(3, broker(2, is_fenced=True))
    assert told(none, live, is_controller=True).events == ["broker_registered", "broker_unfenced"]
    assert told(live, dead, is_controller=True).events == ["broker_fenced"]
    again = image(4, broker(2, epoch=2))
    assert told(dead, again, is_controller=True).events == ["broker_registered", "broker_unfenced"]
    assert told(live, none, is_controller=True).events == ["broker_removed"]
    assert told(live, dead).events == []


def test_a_broker_tells_that_it_was_fenced_but_not_that_it_started() -> None:
    lines = Lines()
    events = ImageEvents(HERE, lines, RoleCounts())
    new, live = image(2, broker(1, is_fenced=True)), image(3, broker(1))
    events.follow(image(1), new, is_controller=True)
    events.follow(new, live, is_controller=True)
    assert lines.lines == []
    fenced = image(4, broker(1, is_fenced=True))
    events.follow(live, fenced, is_controller=False)
    events.follow(fenced, image(5, broker(1)), is_controller=False)
    assert lines.events == ["broker_fenced", "broker_unfenced"]
    assert events.counts.fencings == 1


# -- lines ---------------------------------------------------------------------------------------


def test_of_an_event_so_many_lines_are_written_then_how_many_were_not() -> None:
    lines, clock = Lines(), TurnedClock()
    limited = LimitedEvents(lines, clock, lines_max=2, window_ms=100)
    for number in range(5):
        limited.info("a", number=number)
    limited.warning("b")
    assert lines.events == ["a", "a", "b"]
    clock.now_ms += 100
    limited.sweep()
    assert lines.lines[-1] == ("warning", "events_left_out", {"of": "a", "count": 3})
    limited.info("a")
    assert lines.events[-1] == "a"


def test_a_limit_that_refuses_is_told_with_how_many_since_the_last_look() -> None:
    class Server:
        address = ""

        def __init__(self) -> None:
            self.refused = {"request_memory_bytes": 3}

        def usage(self) -> ListenerUsage:
            return ListenerUsage(request_bytes=0, answer_bytes=0, refused=dict(self.refused))

        async def set_serving(self, services: Sequence[str], *, is_serving: bool) -> None: ...

        async def end_serving(self) -> None: ...

        async def stop(self, grace_ms: int) -> None: ...

    lines, server, meter = Lines(), Server(), Meter(("client",))
    sources = Sources(
        configuration=NodeConfiguration(),
        clock=TurnedClock(),
        meter=meter,
        health=Health(),
        servers={"client": server},
        quotas=Quotas(Image),
    )
    refusals = RefusalEvents(sources, lines)
    refusals.look()
    refusals.look()
    server.refused["request_memory_bytes"] = 5
    meter.produce_refusals["RESOURCE_EXHAUSTED"] = 7
    refusals.look()
    limit = "listeners.client.limits.request_memory_bytes"
    assert [values for _, _, values in lines.lines] == [
        {"limit": limit, "count": 3},
        {"limit": limit, "count": 2},
        {"limit": "produce.queued_bytes_max", "count": 7},
    ]


# -- health --------------------------------------------------------------------------------------


class Healthy:
    """A server that keeps what its health service says."""

    address = ""

    def __init__(self) -> None:
        self.says: dict[str, bool] = {}

    def usage(self) -> ListenerUsage:
        return ListenerUsage(request_bytes=0, answer_bytes=0, refused={})

    async def set_serving(self, services: Sequence[str], *, is_serving: bool) -> None:
        self.says.update(dict.fromkeys(services, is_serving))

    async def end_serving(self) -> None:
        self.says = dict.fromkeys(self.says, False)

    async def stop(self, grace_ms: int) -> None: ...


def test_a_service_serves_once_nothing_of_it_waits_for_the_broker() -> None:
    async def main() -> None:
        health, server = Health(), Healthy()
        methods = ["/a.Early/X", "/a.Late/X", "/a.Late/Y"]
        health.watch(server, methods, ["/a.Late/Y"])
        request = PageRequest(path="/readyz")
        assert (await health.ready(request)).status == 503
        await health.open()
        assert server.says == {"": True, "a.Early": True}
        assert (await health.ready(request)).status == 200
        await health.serve()
        assert server.says == {"": True, "a.Early": True, "a.Late": True}
        await health.stop()
        assert not any(server.says.values())
        assert (await health.ready(request)).status == 503
        assert (await health.live(request)).status == 200
        await health.serve()
        assert not health.is_serving

    asyncio.run(main())


def test_a_watcher_that_takes_nothing_does_not_hold_a_stop_up() -> None:
    class Stuck(Healthy):
        async def end_serving(self) -> None:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        health = Health(tell_seconds=0.001)
        health.watch(Stuck(), [], [])
        await asyncio.wait_for(health.stop(), 5)
        assert health.is_stopping

    asyncio.run(main())


# -- slow requests -------------------------------------------------------------------------------


def slow(call: LongCall) -> Lines:
    lines, clock = Lines(), TurnedClock()
    requests = SlowRequests(100, lines, clock, ())
    assert requests.tell(call) == bool(lines.lines)
    return lines


def long_call(duration_ms: int, request: bytes, method: str = "Fetch") -> LongCall:
    context = RequestContext(
        principal="p", listener="client", client_id="c", address="a:1", deadline_ns=0
    )
    return LongCall(
        method=f"/tidelog.v1.FetchService/{method}",
        context=context,
        code="OK",
        duration_ns=duration_ms * MS,
        request=request,
        request_bytes=len(request),
    )


def test_a_long_poll_is_slow_by_what_it_takes_beyond_its_wait() -> None:
    request = fetch_pb2.FetchRequest(
        max_wait_ms=5_000, positions=[fetch_pb2.FetchPosition(), fetch_pb2.FetchPosition()]
    ).SerializeToString()
    assert slow(long_call(5_050, request)).lines == []
    ((_, event, values),) = slow(long_call(5_101, request)).lines
    assert event == "slow_request"
    assert (values["partitions"], values["asked_to_wait_ms"]) == (2, 5_000)
    assert (values["method"], values["client_id"], values["took_ms"]) == ("Fetch", "c", 5_101)


def test_a_long_poll_that_another_broker_passes_on_is_judged_as_a_clients() -> None:
    fetch = fetch_pb2.FetchRequest(max_wait_ms=5_000, positions=[fetch_pb2.FetchPosition()])
    request = broker_peer_pb2.FetchOwnRequest(fetch=fetch).SerializeToString()
    call = msgspec.structs.replace(
        long_call(5_050, request), method="/tidelog.v1.BrokerPeerService/FetchOwn"
    )
    assert slow(call).lines == []
    late = msgspec.structs.replace(call, duration_ns=5_101 * MS)
    ((_, _, values),) = slow(late).lines
    assert (values["partitions"], values["asked_to_wait_ms"]) == (1, 5_000)


def test_every_request_that_asks_for_a_wait_is_known_to_the_log_of_slow_ones() -> None:
    asking = {
        method_name(method)
        for method in all_methods()
        if not method.client_streaming and _asks_to_wait(method.input_type)
    }
    assert asking == {name for name in slow_requests._KNOWN if "Produce" not in name}


def _asks_to_wait(message: Descriptor) -> bool:
    return any(
        field.name == "max_wait_ms"
        or (field.message_type is not None and _asks_to_wait(field.message_type))
        for field in message.fields
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("ü", "ü"),
        ("two words", '"two words"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("a\0b", '"a\\u0000b"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("a\u202eb", '"a\\u202eb"'),
        ("\x7f", '"\\u007f"'),
        ("a\u00a0b", '"a\\u00a0b"'),
    ],
)
def test_a_line_of_the_log_holds_nothing_that_is_not_printed(value: str, written: str) -> None:
    assert log_events._text(value) == written


def test_a_slow_request_that_cannot_be_read_is_told_without_its_parts() -> None:
    ((_, _, values),) = slow(long_call(200, b"\xff\xff")).lines
    assert "partitions" not in values


def test_two_nodes_in_one_process_share_no_counts() -> None:
    first, second = (
        Sources(
            configuration=NodeConfiguration(),
            clock=TurnedClock(),
            meter=Meter(()),
            health=Health(),
        )
        for _ in range(2)
    )
    first.watched.stalls += 1
    assert second.watched.stalls == 0
    assert msgspec.structs.asdict(second.roles)["fencings"] == 0


# -- counts of an image --------------------------------------------------------------------------


def test_a_topic_is_counted_again_once_it_changes() -> None:
    counts = ImageCounts()
    whole = counts.count(image(1))
    assert (whole.partitions, whole.under_replicated, whole.offline) == (1, 0, 0)
    assert counts.count(image(2, in_sync=(1,))).under_replicated == 1
    alone = counts.count(image(3, leader=-1))
    assert (alone.offline, alone.not_preferred) == (1, 0)
    assert counts.count(image(4, leader=2)).not_preferred == 1


def test_a_disk_that_takes_nothing_more_is_told_once_and_when_it_does_again() -> None:
    full = TidelogError(ErrorCode.STORAGE_FULL, tried="append", happened="no space")
    seconds: list[dict[str, TidelogError]] = [{}, {"/d": full}, {"/d": full}, {}, {}]
    lines, clock = Lines(), TurnedClock()

    class Broker:
        failures: ClassVar[dict[str, TidelogError]] = {}

        @property
        def full_disks(self) -> dict[str, TidelogError]:
            if not seconds:
                raise asyncio.CancelledError
            return seconds.pop(0)

    watch = NodeWatch.__new__(NodeWatch)
    watch._clock = clock
    watch._events = LimitedEvents(lines, clock)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch._watch_storage(cast("BrokerRole", Broker())))
    assert lines.lines == [
        ("error", "disk_full", {"directory": "/d", "error": full}),
        ("info", "disk_has_room", {"directory": "/d"}),
    ]

"""What a member says about itself: checked where it enters, kept where it says nothing. Pure."""

from typing import Final

from tidelog.broker.groups.state import limits
from tidelog.broker.groups.state.messages import Caller, GroupSettings
from tidelog.broker.groups.state.records import NO_BROKER, MemberValue
from tidelog.broker.groups.state.refusals import check_name, exhausted
from tidelog.broker.groups.state.topics import compile_pattern
from tidelog.broker.groups.state.world import World
from tidelog.metadata.topic_names import validate_topic_name
from tidelog.wire.calls.groups import AWAY_EPOCH, Heartbeat, Subscription
from tidelog.wire.group_names import validate_group_name
from tidelog.wire.refusals import invalid

TRIED: Final = "beat in group `{0.group}` as member `{0.member_id}`"


def check_request(world: World, heartbeat: Heartbeat) -> None:
    """INVALID_ARGUMENT, or RESOURCE_EXHAUSTED, before anything is looked at."""
    tried = TRIED.format(heartbeat)
    validate_group_name(heartbeat.group, tried=tried)
    check_name(tried, "member id", heartbeat.member_id, limits.MEMBER_ID_BYTES_MAX)
    if heartbeat.group_instance_id:
        check_name(tried, "group_instance_id", heartbeat.group_instance_id)
    if heartbeat.rack:
        check_name(tried, "rack", heartbeat.rack)
    if heartbeat.member_epoch < AWAY_EPOCH:
        raise invalid(tried, f"{heartbeat.member_epoch} is no member epoch")
    _check_timeouts(world.settings(heartbeat.group), heartbeat)
    if heartbeat.subscription is not None:
        _check_subscription(world, heartbeat, heartbeat.subscription)
    if heartbeat.owned is not None and len(heartbeat.owned) > limits.PARTITIONS_PER_GROUP_MAX:
        limit = limits.PARTITIONS_PER_GROUP_MAX
        raise exhausted(tried, "it owns too many partitions", "PARTITIONS_PER_GROUP_MAX", limit)


def _check_timeouts(settings: GroupSettings, heartbeat: Heartbeat) -> None:
    lowest, highest = settings.session_timeout_ms_min, settings.session_timeout_ms_max
    wished = heartbeat.session_timeout_ms
    if wished and not lowest <= wished <= highest:
        happened = f"a session timeout of {wished} ms is not within {lowest} to {highest}"
        raise invalid(TRIED.format(heartbeat), happened)
    wished = heartbeat.rebalance_timeout_ms
    if wished and not wished <= limits.REBALANCE_TIMEOUT_MS_MAX:
        highest = limits.REBALANCE_TIMEOUT_MS_MAX
        happened = f"a rebalance timeout of {wished} ms is above {highest}"
        raise invalid(TRIED.format(heartbeat), happened)


def _check_subscription(world: World, heartbeat: Heartbeat, wished: Subscription) -> None:
    tried = TRIED.format(heartbeat)
    if len(wished.topics) > limits.TOPICS_PER_SUBSCRIPTION_MAX:
        limit = limits.TOPICS_PER_SUBSCRIPTION_MAX
        raise exhausted(tried, "it names too many topics", "TOPICS_PER_SUBSCRIPTION_MAX", limit)
    if len(dict.fromkeys(wished.topics)) != len(wished.topics):
        raise invalid(tried, "a topic is named twice")
    for name in wished.topics:
        validate_topic_name(name)
    if sum(len(name.encode()) for name in wished.topics) > limits.SUBSCRIPTION_BYTES_MAX:
        limit = limits.SUBSCRIPTION_BYTES_MAX
        raise exhausted(tried, "its topics' names are too long", "SUBSCRIPTION_BYTES_MAX", limit)
    if wished.topic_pattern:
        compile_pattern(wished.topic_pattern)
    partitions = sum(each.partition_count for each in world.topics.resolve(_sorted(wished)))
    if partitions > limits.PARTITIONS_PER_GROUP_MAX:
        limit = limits.PARTITIONS_PER_GROUP_MAX
        happened = f"it covers {partitions:,} partitions"
        raise exhausted(tried, happened, "PARTITIONS_PER_GROUP_MAX", limit)


def _sorted(wished: Subscription) -> Subscription:
    return Subscription(
        topics=tuple(sorted(wished.topics)),
        topic_pattern=wished.topic_pattern,
        assignor=wished.assignor,
    )


def heard_words(
    world: World, known: MemberValue | None, heartbeat: Heartbeat, caller: Caller
) -> MemberValue:
    """What is known of the member after this heartbeat."""
    settings = world.settings(heartbeat.group)
    wished = _sorted(heartbeat.subscription) if heartbeat.subscription else None
    carrier = caller.carrier
    return MemberValue(
        group_instance_id=heartbeat.group_instance_id or (known.group_instance_id if known else ""),
        rack=heartbeat.rack if heartbeat.rack is not None else (known.rack if known else ""),
        client_id=caller.client_id or (known.client_id if known else ""),
        address=caller.address or (known.address if known else ""),
        session_timeout_ms=_either(
            heartbeat.session_timeout_ms,
            known.session_timeout_ms if known else None,
            settings.session_timeout_ms,
        ),
        rebalance_timeout_ms=_either(
            heartbeat.rebalance_timeout_ms,
            known.rebalance_timeout_ms if known else None,
            limits.REBALANCE_TIMEOUT_MS_DEFAULT,
        ),
        topics=wished.topics if wished else (known.topics if known else ()),
        topic_pattern=wished.topic_pattern if wished else (known.topic_pattern if known else ""),
        assignor=wished.assignor if wished else (known.assignor if known else 0),
        broker_id=carrier.broker_id if carrier else NO_BROKER,
        broker_epoch=carrier.broker_epoch if carrier else NO_BROKER,
    )


def _either(sent: int | None, known: int | None, default: int) -> int:
    """Sent as 0: the default from now on; not sent: as it was."""
    if sent is None and known is not None:
        return known
    return sent or default

"""Which brokers hold a partition's replicas: spread over racks, then hosts, then the least loaded.

Pure and deterministic: the same brokers and loads give the same placement. It must never place two
replicas of a partition on one broker, nor on a broker that may not take any. The first replica of
each partition is the preferred leader, so leaders are spread first.

Order of preference for a leader: the fewest leaders of this topic, then of all topics, then the
fewest replicas. For each further replica: the rack that holds the fewest replicas of the partition,
then the host that does, then the broker with the fewest replicas of this topic, then of all topics.
An even topic counts above an even cluster: a new broker does not get the whole of the next topic.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tidelog.metadata.settings.limits import REPLICAS_MAX
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.ids import BrokerId


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that may be given replicas, with what it bears now."""

    broker_id: BrokerId
    rack: str = ""
    """Empty: no rack was configured; all such brokers count as one rack."""
    host: str = ""
    """Empty: not known; it counts as a host of its own."""
    replica_count: int = 0
    leader_count: int = 0


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the replicas of some partitions stand."""

    replicas: tuple[tuple[BrokerId, ...], ...]
    """One for each partition, in order of preference."""
    warnings: tuple[str, ...] = ()


class _Load(msgspec.Struct):
    """A candidate while one topic is placed."""

    candidate: Candidate
    place: str
    """Its host, or a name that no other broker has."""
    topic_replicas: int = 0
    topic_leaders: int = 0
    replicas: int = 0
    leaders: int = 0


def place_partitions(
    candidates: Sequence[Candidate],
    *,
    partition_count: int,
    replication_factor: int,
    tried: str,
    existing: Iterable[Sequence[BrokerId]] = (),
    is_strict: bool = False,
) -> Placement:
    """Place new partitions of one topic, of which `existing` ones stand already."""
    if not 1 <= replication_factor <= min(len(candidates), REPLICAS_MAX):
        raise TidelogError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            tried=tried,
            happened=f"{replication_factor} replicas were asked for, "
            f"{len(candidates)} brokers can take one",
        )
    loads = [_load(candidate) for candidate in candidates]
    _count_existing(loads, existing)
    placed = [_place_one(loads, replication_factor) for _ in range(partition_count)]
    found = tuple(tuple(load.candidate.broker_id for load in members) for members in placed)
    warnings = spread_warnings(candidates, found)
    if warnings and is_strict:
        raise _strict(ErrorCode.INVALID_REPLICATION_FACTOR, tried, warnings)
    return Placement(replicas=found, warnings=warnings)


def validate_assignments(
    candidates: Sequence[Candidate],
    assignments: Sequence[Sequence[BrokerId]],
    *,
    tried: str,
    is_strict: bool = False,
    kept: Sequence[BrokerId] = (),
) -> Placement:
    """Explicit replicas, found right. `kept` brokers hold a replica already, so may keep it."""
    able = {candidate.broker_id for candidate in candidates}
    for replicas in assignments:
        _validate_assignment(replicas, able, kept, tried)
    if len({len(replicas) for replicas in assignments}) > 1:
        raise _invalid(tried, "its partitions have different numbers of replicas")
    found = tuple(tuple(replicas) for replicas in assignments)
    warnings = spread_warnings(candidates, found)
    if warnings and is_strict:
        raise _strict(ErrorCode.INVALID_ARGUMENT, tried, warnings)
    return Placement(replicas=found, warnings=warnings)


def spread_warnings(
    candidates: Sequence[Candidate], placed: Sequence[Sequence[BrokerId]]
) -> tuple[str, ...]:
    """What a placement does not keep apart, one sentence each."""
    known = {candidate.broker_id: candidate for candidate in candidates}
    has_racks = any(candidate.rack for candidate in candidates)
    shared_racks = shared_hosts = 0
    for replicas in placed:
        members = [known[replica] for replica in replicas if replica in known]
        if has_racks and len({member.rack for member in members}) < len(members):
            shared_racks += 1
        hosts = [member.host for member in members if member.host]
        if len(dict.fromkeys(hosts)) < len(hosts):
            shared_hosts += 1
    warnings = []
    if shared_racks:
        racks = len({candidate.rack for candidate in candidates})
        warnings.append(
            f"{shared_racks} of {len(placed)} partitions have replicas in one rack together: "
            f"there are brokers in {racks} racks."
        )
    if shared_hosts:
        warnings.append(
            f"{shared_hosts} of {len(placed)} partitions have replicas on one machine together, "
            "which are lost together."
        )
    return tuple(warnings)


def _load(candidate: Candidate) -> _Load:
    return _Load(
        candidate=candidate,
        # No host name contains a space.
        place=candidate.host or f"broker {candidate.broker_id}",
        replicas=candidate.replica_count,
        leaders=candidate.leader_count,
    )


def _count_existing(loads: Sequence[_Load], existing: Iterable[Sequence[BrokerId]]) -> None:
    by_id = {load.candidate.broker_id: load for load in loads}
    for replicas in existing:
        for place, replica in enumerate(replicas):
            load = by_id.get(replica)
            if load is not None:
                load.topic_replicas += 1
                load.topic_leaders += place == 0


def _place_one(loads: Sequence[_Load], replication_factor: int) -> list[_Load]:
    """One partition's replicas; counts them."""
    leader = min(loads, key=_leader_order)
    leader.topic_leaders += 1
    leader.leaders += 1
    members = [leader]
    racks = {leader.candidate.rack: 1}
    places = {leader.place: 1}

    def order(load: _Load) -> tuple[int, int, int, int, BrokerId]:
        return (
            racks.get(load.candidate.rack, 0),
            places.get(load.place, 0),
            load.topic_replicas,
            load.replicas,
            load.candidate.broker_id,
        )

    while len(members) < replication_factor:
        chosen = min((load for load in loads if load not in members), key=order)
        members.append(chosen)
        racks[chosen.candidate.rack] = racks.get(chosen.candidate.rack, 0) + 1
        places[chosen.place] = places.get(chosen.place, 0) + 1
    for member in members:
        member.topic_replicas += 1
        member.replicas += 1
    return members


def _leader_order(load: _Load) -> tuple[int, int, int, int, BrokerId]:
    return (
        load.topic_leaders,
        load.leaders,
        load.topic_replicas,
        load.replicas,
        load.candidate.broker_id,
    )


def _validate_assignment(
    replicas: Sequence[BrokerId], able: set[BrokerId], kept: Sequence[BrokerId], tried: str
) -> None:
    if not 1 <= len(replicas) <= REPLICAS_MAX:
        raise _invalid(tried, f"a partition has 1 to {REPLICAS_MAX} replicas, not {len(replicas)}")
    if len(dict.fromkeys(replicas)) < len(replicas):
        raise _invalid(tried, f"the replicas {_text(replicas)} name a broker twice")
    for replica in replicas:
        if replica not in able and replica not in kept:
            raise _invalid(
                tried,
                f"broker {replica} is not there, fenced, being emptied or stopping",
                "Choose among the brokers that `tidelog broker list` shows as live.",
            )


def _text(replicas: Sequence[BrokerId]) -> str:
    return ", ".join(str(replica) for replica in replicas)


def _invalid(tried: str, happened: str, hint: str = "") -> TidelogError:
    return TidelogError(ErrorCode.INVALID_ARGUMENT, tried=tried, happened=happened, hint=hint)


def _strict(code: ErrorCode, tried: str, warnings: Sequence[str]) -> TidelogError:
    return TidelogError(
        code,
        tried=tried,
        happened=f"placement.strict is on: {warnings[0]}",
        hint="Add brokers elsewhere, ask for fewer replicas, or set placement.strict to false.",
    )

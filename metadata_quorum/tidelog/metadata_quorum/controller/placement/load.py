"""What each broker bears, which brokers may be given more, and where they keep it. Pure."""

from tidelog.metadata.eligibility import may_take_replicas
from tidelog.metadata.image.image import NO_DIRECTORY, BrokerImage, Image
from tidelog.metadata_quorum.controller.placement.placement import Candidate
from tidelog.wire.ids import BrokerId, PartitionId


def candidates_of(image: Image) -> list[Candidate]:
    """Brokers that may be given replicas, in ascending order of id."""
    able = [broker for broker in image.brokers.values() if may_take_replicas(broker)]
    return [candidate_of(image, broker) for broker in able]


def candidate_of(image: Image, broker: BrokerImage) -> Candidate:
    """The broker with its load."""
    return Candidate(
        broker_id=broker.broker_id,
        rack=broker.rack,
        host=broker.host_name,
        replica_count=image.held_by(broker.broker_id).count,
        leader_count=image.led_by(broker.broker_id).count,
    )


def told_unable(image: Image) -> str:
    """Why the other brokers take no replicas, for an error; of each the reason that counts most."""
    reasons = [_reason(each) for each in image.brokers.values() if not may_take_replicas(each)]
    told = [f"{reasons.count(each)} {each}" for each in sorted(dict.fromkeys(reasons))]
    return f" ({', '.join(told)})" if told else ""


def _reason(broker: BrokerImage) -> str:
    if broker.is_fenced:
        return "not there"
    if broker.is_shutting_down:
        return "stopping"
    return "being drained" if broker.is_draining else "without room or a working directory"


def choose_directory(image: Image, broker_id: BrokerId, partition: PartitionId) -> bytes:
    """Where the broker keeps a new replica: its directories take turns, also over topics of one
    partition each."""
    broker = image.brokers.get(broker_id)
    online = [] if broker is None else [each.uuid for each in broker.directories if each.is_online]
    turn = image.held_by(broker_id).count + partition
    return online[turn % len(online)] if online else NO_DIRECTORY

"""What each broker bears, and which brokers may be given more. Pure."""

from tidelog.metadata_quorum.controller.placement import Candidate
from tidelog.metadata_quorum.image import BrokerImage, Image


def may_take_replicas(broker: BrokerImage) -> bool:
    """Alive, and to stay: neither stopping nor being emptied."""
    return not (broker.is_fenced or broker.is_shutting_down or broker.is_draining)


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

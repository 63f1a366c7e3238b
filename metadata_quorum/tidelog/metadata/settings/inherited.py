"""Values that topics inherit from their broker and their cluster. Pure."""

from tidelog.metadata.image.image import Image
from tidelog.metadata.settings import catalogue
from tidelog.metadata.settings.kinds import Scope
from tidelog.wire.ids import BrokerId


def inherited_by_topics(image: Image, broker_id: BrokerId) -> dict[str, str]:
    """What the broker and the cluster set for all topics, for `settings.of_topics.parse`."""
    known = [setting.name for setting in catalogue.settings_of(Scope.TOPIC)]
    both = {
        **dict(image.cluster_configuration),
        **image.broker_configurations.get(broker_id, {}),
    }
    return {name: both[name] for name in known if name in both}


def cluster_value(image: Image, name: str) -> str:
    """The cluster's value of a setting, else its default."""
    return image.cluster_configuration.get(name) or catalogue.CATALOGUE[name].default

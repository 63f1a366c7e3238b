"""The refusal of a topic's name that nobody has. Pure."""

from tidelog.metadata.image.image import Image
from tidelog.wire.errors import ErrorCode, TidelogError
from tidelog.wire.nearest import did_you_mean


def unknown_topic(
    name: str, image: Image, *, tried: str, hint: str = "", may_guess: bool = True
) -> TidelogError:
    """The error for a name that no topic has, with the nearest one if it may be looked for."""
    near = did_you_mean(name, image.topic_ids) if may_guess else ""
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC,
        tried=tried,
        happened=f"there is no topic `{name}`",
        hint=" ".join(part for part in (near, hint) if part),
    )

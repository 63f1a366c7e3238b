"""What kafka-python says of a topic's name before anybody is asked.

Owns the check. The broker has its own, which counts.
"""

import re
from typing import Any, Final

TOPIC_MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def ensure_valid_topic_name(topic: Any) -> None:
    """TypeError or ValueError."""
    if not isinstance(topic, str):
        raise TypeError("All topics must be strings")
    if not topic:
        raise ValueError("All topics must be non-empty strings")
    if topic in (".", ".."):
        raise ValueError('Topic name cannot be "." or ".."')
    if len(topic) > TOPIC_MAX_LENGTH:
        raise ValueError(
            f"Topic name is illegal, it can't be longer than {TOPIC_MAX_LENGTH} characters, "
            f'topic: "{topic}"'
        )
    if not _LEGAL.fullmatch(topic):
        raise ValueError(
            f'Topic name "{topic}" is illegal, it contains a character other than ASCII '
            'alphanumerics, ".", "_" and "-"'
        )

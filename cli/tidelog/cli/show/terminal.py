"""What is known of the terminal, if there is one. Owns emphasis; colour never carries meaning."""

import os
from typing import Final, TextIO

_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at the stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def emphasise(text: str, stream: TextIO | None) -> str:
    """The text in bold on a terminal that wants it; the same letters everywhere."""
    if not is_terminal(stream) or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"{_BOLD}{text}{_PLAIN}"
